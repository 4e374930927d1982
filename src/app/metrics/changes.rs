//! Metrics of temporary changes.

use crate::changes::{ChangeAction, CurrentChanges};
use crate::telemetry::Exposition;
use crate::time::Micros;

pub(super) fn expose(current: &CurrentChanges, local: Micros, page: &mut Exposition) {
    let (all, now) = (current.all(), current.now(local));
    let help = "Active temporary changes, by action.";
    let family = page.gauge("weir_changes", help);
    for action in ChangeAction::NAMES {
        family.sample(&[("action", action)], all.count(action, now) as u64);
    }
    let help = "Reads of the temporary changes in Redis that failed. The last ones stay.";
    page.counter("weir_changes_poll_errors_total", help).single(current.poll_errors());
}
