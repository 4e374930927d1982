//! From a limit to a step, and from a store's outcome to a decision: all division happens here.

use crate::decision::Decision;
use crate::limit::Limit;
use crate::step::{Outcome, Step};
use crate::time::Micros;

/// What a store must be asked to decide `hits` on a counter of `limit` at `now`.
pub fn plan(_limit: &Limit, _hits: i64, _now: Micros) -> Step {
    todo!()
}

/// What the store's answer means.
pub fn report(_limit: &Limit, _step: &Step, _outcome: &Outcome) -> Decision {
    todo!()
}
