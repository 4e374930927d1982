//! Builds the two logs of decisions: the decision log, and the lines about requests in the log of the
//! process.

use crate::decision_recorder::{DecisionRecorder, RecordWriter, RecorderError};
use crate::key::KeySeed;
use crate::request_log::RequestLog;
use crate::settings::{Settings, StoreKind};
use crate::telemetry::TopDenied;
use crate::time::{Clock, SystemClock};

/// The seed of the hashes of values, which both logs share.
pub(super) fn values_seed(settings: &Settings) -> KeySeed {
    let secret = settings.redis.key_secret.as_ref();
    // With a secret, the hashes of all instances agree. The seed of counters is public without one.
    match secret.filter(|_| settings.store.kind == StoreKind::Redis) {
        Some(secret) => KeySeed::from_secret(secret.reveal()),
        None => KeySeed::random(),
    }
}

/// The decision log and its writer; `None` without `log.decisions.path`.
pub(super) fn decision_records(
    settings: &Settings,
    values_seed: KeySeed,
    clock: SystemClock,
) -> Result<Option<(DecisionRecorder, RecordWriter)>, RecorderError> {
    DecisionRecorder::start(&settings.decisions, values_seed, clock)
}

/// The lines about requests. Counters have the hashes of `top`.
pub(super) fn request_log(
    settings: &Settings,
    values_seed: KeySeed,
    top: &TopDenied,
    clock: SystemClock,
) -> RequestLog {
    RequestLog::new(&settings.log, values_seed, *top.seed(), clock.now())
}
