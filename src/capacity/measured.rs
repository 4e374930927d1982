//! Measured costs, each with its source. They are those of one machine.
//!
//! `make docs` writes the values that docs/design/performance/capacity.csv has, by
//! `tests/published_costs.rs`. docs/operate/scaling.md says which costs no page states yet.

use super::cores::CostByRate;

/// CPU seconds per second of an instance without calls: "idle: CPU, %".
pub(super) const INSTANCE_IDLE: f64 = 4.12e-4;

/// Bytes of an instance without calls: "idle: resident, MiB".
pub(super) const INSTANCE_RESIDENT: f64 = 1.67e7;

/// CPU seconds of an instance for a call without a step in Redis: "saturated: CPU s per 100 000: memory".
pub(super) const INSTANCE_CALL: f64 = 1.42e-6;

/// CPU seconds of an instance for a call with one step: "saturated: CPU s per 100 000: Redis".
pub(super) const INSTANCE_CALL_WITH_STEP: f64 = 3.65e-6;

/// The same at 8 calls per second: "50 x 8: CPU s per 100 000", of the cheapest algorithm.
const INSTANCE_CALL_AT_8_LEAST: f64 = 3.25e-4;
/// The same at 1 000 calls per second: "1 x 1000: CPU s per 100 000", of the cheapest algorithm.
const INSTANCE_CALL_AT_1000_LEAST: f64 = 3.67e-5;
/// The same at 8 calls per second, of the costliest algorithm.
const INSTANCE_CALL_AT_8_MOST: f64 = 4.08e-4;
/// The same at 500 calls per second: "8 x 500: CPU s per 100 000", of the costliest algorithm.
const INSTANCE_CALL_AT_500_MOST: f64 = 7.75e-5;

/// The least and the most CPU seconds of an instance for a call with one step, by its calls per second.
pub(super) const INSTANCE_LONE_CALL: [CostByRate; 2] = [
    CostByRate {
        rates: [8.0, 1e3],
        seconds: [INSTANCE_CALL_AT_8_LEAST, INSTANCE_CALL_AT_1000_LEAST],
    },
    CostByRate {
        rates: [8.0, 500.0],
        seconds: [INSTANCE_CALL_AT_8_MOST, INSTANCE_CALL_AT_500_MOST],
    },
];

/// The part of the wake-ups of an instance that a call without a step has too: "through Envoy, 500: CPU s
/// of the service", from memory, divided by that of `exact`.
pub(super) const MEMORY_SHARE: f64 = 3.68e-1;

/// The round trip of a call to Redis in seconds: "open: p50, us", of Redis less that of memory.
pub(super) const ROUND_TRIP: f64 = 3.37e-5;

/// CPU seconds of Redis for a function call of one step, in pipelines of 16: "one FCALL each".
pub(super) const REDIS_FUNCTION_CALL: f64 = 2.75e-6;

/// CPU seconds of Redis for each further step of a call, on a counter that the call mostly has already: from
/// "batches: Redis CPU s per million: 10 counters, uniform".
pub(super) const REDIS_STEP_CHEAPEST: f64 = 6.67e-7;
/// The same on another counter: from "calls of 16 steps each". Since b4503e55, that figure is of steps that share an
/// argument, which only fixed windows of one tier do; the value is older.
pub(super) const REDIS_STEP_COSTLIEST: f64 = 1.94e-6;

/// CPU seconds of Redis for one step in a separate call, at 400 calls per second: the least by algorithm of
/// "8 x 50: Redis CPU s per 100 000" and of "50 x 8".
const REDIS_CALL_AT_400_LEAST: f64 = 2.65e-5;
/// The most of them.
const REDIS_CALL_AT_400_MOST: f64 = 5.08e-5;
/// The same at 4 000 calls per second and more: the least of "8 x 500".
const REDIS_CALL_AT_4000_LEAST: f64 = 2.04e-5;
/// The most of them.
const REDIS_CALL_AT_4000_MOST: f64 = 2.60e-5;

/// The least and the most CPU seconds of Redis for one step in a separate function call, by the writes per
/// second.
pub(super) const REDIS_LONE_CALL: [CostByRate; 2] = [
    CostByRate {
        rates: [400.0, 4e3],
        seconds: [REDIS_CALL_AT_400_LEAST, REDIS_CALL_AT_4000_LEAST],
    },
    CostByRate { rates: [400.0, 4e3], seconds: [REDIS_CALL_AT_400_MOST, REDIS_CALL_AT_4000_MOST] },
];

/// CPU of Redis for a step in a separate EVALSHA, relative to that of INCRBY with PEXPIRE: the last column
/// of the table in docs/design/redis-functions.md.
const SCRIPT_RATIO: f64 = 2.5;
/// The same by FCALL.
const FUNCTION_RATIO: f64 = 1.9;

/// The cost of a call in the form that Redis runs, relative to that of a function.
pub(super) fn form_ratio(uses_functions: bool) -> f64 {
    if uses_functions { 1.0 } else { SCRIPT_RATIO / FUNCTION_RATIO }
}

/// Bytes that the memory of Redis grows by for a counter of a fixed window: docs/operate/scaling.md,
/// "Memory of Redis".
pub(super) const REDIS_COUNTER_BYTES: f64 = 207.0;
