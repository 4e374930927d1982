//! The order in which requests count, where it is not that of their arrival.

use super::*;

/// The latest instant as of which another request possibly counted before `asked`, or that of its
/// arrival. A bucket does not drain again between the two, and a window does not return.
pub(super) fn latest_before(facts: &Facts<'_>, asked: &Asked) -> Micros {
    let latest = match facts.mode {
        Mode::Exact => None,
        Mode::Leased => overtaking_step(facts, asked),
        Mode::Synced { .. } => overtaking_step(facts, asked).max(latest_with(facts, asked)),
    };
    latest.map_or(asked.begun, |latest| latest.max(asked.begun))
}

/// Whether Redis decided `asked`, or a request whose reply `asked` waited for, after a step of a later
/// instant. The counter then was as full as at that instant, although the bucket has drained by then
/// or the window is another one.
pub(super) fn is_overtaken(facts: &Facts<'_>, asked: &Asked) -> bool {
    let [_, latest] = facts.around(asked.begun);
    let after = |one: &Asked| overtaking_step(facts, one).is_some_and(|at| at > latest);
    let synced = matches!(facts.mode, Mode::Synced { .. });
    let failed = |one: &Asked| matches!(one.decided, Decided::Failed(_) | Decided::Pending);
    let replied = |one: &&Asked| synced && one.end <= asked.end && !failed(one);
    after(asked) || waiting_with(facts, asked).filter(replied).any(after)
}

/// The latest instant of a step that changed the counter before the step of `asked`; `None` if
/// `asked` has no step. The first requests to a counter have one, before there is a replica or a
/// credit pool.
fn overtaking_step(facts: &Facts<'_>, asked: &Asked) -> Option<Micros> {
    let own = own_step(facts, asked)?;
    let before = facts.history.applied[..own].iter();
    let changes = before.filter(|one| one.key == facts.key && one.allowed);
    let steps = changes.filter_map(|one| one.step.as_ref()).filter(|step| step.hits != 0);
    steps.map(|step| step.now).max()
}

/// The position of the step in Redis that decided `asked`. If it is denied, so was its step.
pub(super) fn own_step(facts: &Facts<'_>, asked: &Asked) -> Option<usize> {
    if asked.begun == asked.end {
        return None;
    }
    facts.history.applied.iter().position(|one| {
        let Some(step) = &one.step else { return false };
        let own = one.key == facts.key && one.instance == asked.instance;
        let in_time = asked.begun <= one.at && one.at <= asked.end;
        let as_of = step.now.0.abs_diff(asked.begun.0) <= facts.error.0;
        let decides = asked.decided != Decided::Denied || !one.allowed;
        own && in_time && as_of && decides && step.hits == asked.hits
    })
}

/// The latest instant at which a request possibly counted that waited with `asked`.
fn latest_with(facts: &Facts<'_>, asked: &Asked) -> Option<Micros> {
    let together = waiting_with(facts, asked).filter(|one| one.passed() > 0);
    let counted = |one: &Asked| overtaking_step(facts, one).max(Some(one.begun));
    together.filter_map(counted).max()
}

/// The requests to the same instance that possibly waited for the first reply together with `asked`,
/// and `asked` itself. They are decided in any order.
fn waiting_with<'f>(facts: &'f Facts<'_>, asked: &Asked) -> impl Iterator<Item = &'f Asked> {
    let (instance, end, waits) = (asked.instance, asked.end, asked.begun < asked.end);
    let together = move |one: &&Asked| {
        waits && one.begun < one.end && one.instance == instance && one.begun <= end
    };
    facts.asked.iter().copied().filter(together)
}
