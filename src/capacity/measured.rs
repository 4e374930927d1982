//! Measured costs, each with its source. They are those of the machine of docs/design/performance.md.
//!
//! No page states these costs, so the model lacks them: a write and a wake-up of Redis while it is
//! busy, a step by algorithm, the memory of a counter in Redis, a call from memory at a low rate,
//! the memory of credit pools and replicas, and TLS to Redis.

use serde::Serialize;

/// CPU seconds of an instance for a call without a step in Redis: `weir from memory`, saturated, in the
/// table of servers in docs/design/performance.md.
pub(super) const INSTANCE_CALL: f64 = 1.01e-5;

/// CPU seconds of an instance for a call with one step: `weir on Redis`, saturated, in the same table.
const INSTANCE_CALL_WITH_STEP: f64 = 1.95e-5;

/// The same at 5 000 calls per second, at which the threads wake up for each call: "Where the time
/// goes" in docs/design/performance.md.
const INSTANCE_CALL_WITH_STEP_AND_WAKE_UPS: f64 = 9.7e-5;

/// CPU seconds of Redis for a script call of one step that wakes it up, from the same section.
const REDIS_CALL_WITH_WAKE_UP: f64 = 5.5e-5;

/// CPU seconds of Redis for one step in one EVALSHA of weir's former script, in pipelines of 16: "one
/// EVALSHA each" in docs/design/performance/figures.csv.
const REDIS_FORMER_SCRIPT_CALL: f64 = 2.11e-5;

/// The share of a call without any step in [`REDIS_FORMER_SCRIPT_CALL`]: below the targets in
/// docs/design/performance.md.
const REDIS_EMPTY_CALL_SHARE: f64 = 0.8;

/// CPU of Redis for a step in a separate call, relative to that of INCRBY with PEXPIRE: the last column
/// of the table in docs/design/redis-functions.md. This is the script that docs/design/performance.md
/// measured.
pub(super) const FORMER_SCRIPT_RATIO: f64 = 3.6;
/// The same by EVALSHA of the present script.
pub(super) const SCRIPT_RATIO: f64 = 2.5;
/// The same by FCALL.
pub(super) const FUNCTION_RATIO: f64 = 1.9;

/// CPU seconds of Redis for each step of a call.
pub(super) const REDIS_STEP: f64 = REDIS_FORMER_SCRIPT_CALL * (1.0 - REDIS_EMPTY_CALL_SHARE);

/// CPU seconds of Redis for a call without its steps, which cost the same in a script and a function.
pub(super) fn redis_call(ratio: f64) -> f64 {
    REDIS_FORMER_SCRIPT_CALL * ratio / FORMER_SCRIPT_RATIO - REDIS_STEP
}

/// CPU seconds that Redis needs in addition when a write wakes it up.
pub(super) const REDIS_WAKE_UP: f64 = REDIS_CALL_WITH_WAKE_UP - REDIS_FORMER_SCRIPT_CALL;

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
