//! Measured costs, each with its source. They are those of one machine.
//!
//! `make docs` writes the values that docs/design/performance/capacity.csv has, by
//! `tests/published_costs.rs`. That file has the figures of an earlier `make bench`;
//! docs/design/capacity.md says why.
//!
//! No page states these costs, so the model lacks them: a write and a wake-up of Redis while it is
//! busy, a step by algorithm, the memory of a counter in Redis, a call from memory at a low rate,
//! the memory of credit pools and replicas, and TLS to Redis.

use serde::Serialize;

/// CPU seconds of an instance for a call without a step in Redis: `weir from memory`, saturated.
pub(super) const INSTANCE_CALL: f64 = 1.01e-5;

/// CPU seconds of an instance for a call with one step: `weir on Redis`, saturated.
const INSTANCE_CALL_WITH_STEP: f64 = 1.95e-5;

/// The same at a low rate, at which the threads wake up for each call: one instance of the small
/// fleets. A page without small fleets has it in "Where the time goes".
const INSTANCE_CALL_WITH_STEP_AND_WAKE_UPS: f64 = 9.7e-5;

/// CPU seconds of Redis for a script call of one step that wakes it up, from the same place.
const REDIS_CALL_WITH_WAKE_UP: f64 = 5.5e-5;

/// The round trip of a call to Redis in seconds: the median on Redis less that from memory, at 5 000
/// calls per second, in the table of servers.
pub(super) const ROUND_TRIP: f64 = 4.70e-4;

/// CPU seconds of Redis for one step in a separate call, in pipelines of 16: "one FCALL each", or "one
/// EVALSHA each" of the former script.
const REDIS_CALL: f64 = 2.11e-5;

/// The way of [`REDIS_CALL`].
pub(super) const REDIS_CALL_RATIO: f64 = FORMER_SCRIPT_RATIO;

/// CPU of Redis for a step in a separate call, relative to that of INCRBY with PEXPIRE: the last column
/// of the table in docs/design/redis-functions.md. This is the script before functions.
const FORMER_SCRIPT_RATIO: f64 = 3.6;
/// The same by EVALSHA of the present script.
pub(super) const SCRIPT_RATIO: f64 = 2.5;
/// The same by FCALL.
pub(super) const FUNCTION_RATIO: f64 = 1.9;

/// The same for the step alone. Four fifths of a call of the former script were the cost of a call
/// without any step. A step costs the same in a script and a function.
const STEP_RATIO: f64 = 0.2 * FORMER_SCRIPT_RATIO;

/// CPU seconds of Redis for INCRBY with PEXPIRE.
const REDIS_INCRBY: f64 = REDIS_CALL / REDIS_CALL_RATIO;

/// CPU seconds of Redis for each step of a call.
pub(super) const REDIS_STEP: f64 = REDIS_INCRBY * STEP_RATIO;

/// CPU seconds of Redis for a call without its steps.
pub(super) fn redis_call(ratio: f64) -> f64 {
    REDIS_INCRBY * ratio - REDIS_STEP
}

/// CPU seconds that Redis needs in addition when a write wakes it up.
pub(super) const REDIS_WAKE_UP: f64 = REDIS_CALL_WITH_WAKE_UP - REDIS_CALL;

/// CPU seconds of an instance for a step, in addition to its call.
pub(super) const INSTANCE_STEP: f64 = INSTANCE_CALL_WITH_STEP - INSTANCE_CALL;

/// CPU seconds of an instance in addition to [`INSTANCE_STEP`], if the threads wake up for the step.
pub(super) const INSTANCE_WAKE_UPS: f64 =
    INSTANCE_CALL_WITH_STEP_AND_WAKE_UPS - INSTANCE_CALL_WITH_STEP;

/// Bounds of the cores in use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cores {
    /// Without wake-ups, as at full load. Over the number of cores, the load is too high.
    pub low: f64,
    /// With a wake-up for each write, as at low load; at most all cores. A busy thread sleeps less
    /// often, so wake-ups do not limit the load.
    pub high: f64,
}

impl Cores {
    /// The bounds for `low` cores, and `wake_ups` more, out of `cores`.
    pub(super) fn new(low: f64, wake_ups: f64, cores: f64) -> Cores {
        Cores { low, high: low.max((low + wake_ups).min(cores)) }
    }
}
