//! The order in which requests count, where it is not that of their arrival.

use super::*;

/// The latest instant as of which another request possibly counted before `asked`, or that of its
/// arrival. A bucket does not drain again between the two, and a window does not return.
pub(super) fn latest_before(facts: &Facts<'_>, asked: &Asked) -> Micros {
    let latest = match facts.mode {
        Mode::Exact => None,
        Mode::Leased => overtaking_step(facts, asked),
        Mode::Synced { .. } => overtaking_step(facts, asked).max(waiting_with(facts, asked)),
    };
    latest.map_or(asked.begun, |latest| latest.max(asked.begun))
}

/// Whether Redis decided `asked` after a step of a later instant. The counter then was as full as
/// at that instant, although the bucket has drained by then or the window is another one.
pub(super) fn is_overtaken(facts: &Facts<'_>, asked: &Asked) -> bool {
    let [_, latest] = facts.around(asked.begun);
    overtaking_step(facts, asked).is_some_and(|at| at > latest)
}

/// The latest instant of a step that changed the counter before the step of `asked`; `None` if
/// `asked` has no step. The first requests to a counter have one, before there is a replica or a
/// credit pool.
fn overtaking_step(facts: &Facts<'_>, asked: &Asked) -> Option<Micros> {
    if asked.begun == asked.end {
        return None;
    }
    let steps = facts.history.applied.iter().filter(|one| one.key == facts.key);
    let mut latest = None;
    for one in steps {
        let step = one.step.as_ref()?;
        let own = one.instance == asked.instance && step.hits == asked.hits;
        let in_time = asked.begun <= one.at && one.at <= asked.end;
        if own && in_time && step.now.0.abs_diff(asked.begun.0) <= facts.error.0 {
            return latest;
        }
        if step.hits != 0 && one.allowed {
            latest = latest.max(Some(step.now));
        }
    }
    None
}

/// The latest arrival of a request to the same instance that possibly waited for the first reply
/// together with `asked`. They are decided in any order.
fn waiting_with(facts: &Facts<'_>, asked: &Asked) -> Option<Micros> {
    if asked.begun == asked.end {
        return None;
    }
    let waits = |one: &&&Asked| one.begun < one.end && one.instance == asked.instance;
    let others = facts.asked.iter().filter(waits);
    let together = others.filter(|one| one.passed() > 0 && one.begun <= asked.end);
    together.map(|one| one.begun).max()
}
