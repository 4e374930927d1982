//! The order in which requests count, where it is not that of their arrival.

use super::*;

/// The latest instant as of which another request possibly counted before `asked`, or that of its
/// arrival. A bucket does not drain again between the two, and a window does not return.
pub(super) fn latest_before(facts: &Facts<'_>, asked: &Asked) -> Micros {
    let latest = match facts.mode {
        Mode::Exact => None,
        Mode::Leased => overtaking_step(facts, asked),
        Mode::Synced { .. } => waiting_with(facts, asked),
    };
    latest.map_or(asked.begun, |latest| latest.max(asked.begun))
}

/// The latest instant of a step that Redis applied before the step of `asked`. There are two such
/// steps in flight only before there is a credit pool, which sends one after another.
fn overtaking_step(facts: &Facts<'_>, asked: &Asked) -> Option<Micros> {
    let steps = facts.history.applied.iter().filter(|one| one.key == facts.key);
    let mut latest = None;
    for one in steps {
        let step = one.step.as_ref()?;
        let own = one.instance == asked.instance && step.hits == asked.hits;
        let in_time = asked.begun <= one.at && one.at <= asked.end;
        if own && in_time && step.now.0.abs_diff(asked.begun.0) <= facts.error.0 {
            return latest;
        }
        latest = latest.max(Some(step.now));
    }
    None
}

/// The latest arrival of a request to the same instance that possibly waited for the first reply
/// together with `asked`. They are decided in any order.
fn waiting_with(facts: &Facts<'_>, asked: &Asked) -> Option<Micros> {
    let waits = |one: &&&Asked| one.begun < one.end && one.instance == asked.instance;
    let others = facts.asked.iter().filter(waits);
    let together = others.filter(|one| one.passed() > 0 && one.begun <= asked.end);
    if asked.begun < asked.end { together.map(|one| one.begun).max() } else { None }
}
