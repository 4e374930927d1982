//! The order in which requests count, where it is not that of their arrival.

use super::*;

/// The latest instant as of which another request possibly counted before `request`, or that of its
/// arrival. A bucket does not drain again between the two, and a window does not return.
pub(super) fn latest_before(facts: &Facts<'_>, request: &RequestRecord) -> Micros {
    let latest = match facts.mode {
        Mode::Exact => None,
        Mode::Leased => overtaking_step(facts, request),
        Mode::Synced { .. } => overtaking_step(facts, request).max(latest_with(facts, request)),
    };
    latest.map_or(request.begun, |latest| latest.max(request.begun))
}

/// Whether Redis decided `request`, or a request whose reply `request` waited for, after a step of a later
/// instant. The counter then was as full as at that instant, although the bucket has drained by then
/// or the window is another one.
pub(super) fn is_overtaken(facts: &Facts<'_>, request: &RequestRecord) -> bool {
    let [_, latest] = facts.around(request.begun);
    let after = |one: &RequestRecord| overtaking_step(facts, one).is_some_and(|at| at > latest);
    let synced = matches!(facts.mode, Mode::Synced { .. });
    let failed = |one: &RequestRecord| matches!(one.decided, Decided::Failed(_) | Decided::Pending);
    let replied = |one: &&RequestRecord| synced && one.end <= request.end && !failed(one);
    after(request) || waiting_with(facts, request).filter(replied).any(after)
}

/// The latest instant of a step that changed the counter before the step of `request`; `None` if
/// `request` has no step. The first requests to a counter have one, before there is a replica or a
/// credit pool.
fn overtaking_step(facts: &Facts<'_>, request: &RequestRecord) -> Option<Micros> {
    let own = own_step(facts, request)?;
    let before = facts.history.applied[..own].iter();
    let changes = before.filter(|one| one.key == facts.key && one.allowed);
    let steps = changes.filter_map(|one| one.step.as_ref()).filter(|step| step.hits != 0);
    steps.map(|step| step.now).max()
}

/// The position of the step in Redis that decided `request`. If it is denied, so was its step.
pub(super) fn own_step(facts: &Facts<'_>, request: &RequestRecord) -> Option<usize> {
    if request.begun == request.end {
        return None;
    }
    facts.history.applied.iter().position(|one| {
        let Some(step) = &one.step else { return false };
        let own = one.key == facts.key && one.instance == request.instance;
        let in_time = request.begun <= one.at && one.at <= request.end;
        let as_of = step.now.0.abs_diff(request.begun.0) <= facts.clock_error.0;
        let decides = request.decided != Decided::Denied || !one.allowed;
        own && in_time && as_of && decides && step.hits == request.hits
    })
}

/// The latest instant at which a request possibly counted that waited with `request`.
fn latest_with(facts: &Facts<'_>, request: &RequestRecord) -> Option<Micros> {
    let together = waiting_with(facts, request).filter(|one| one.passed() > 0);
    let counted = |one: &RequestRecord| overtaking_step(facts, one).max(Some(one.begun));
    together.filter_map(counted).max()
}

/// The requests to the same instance that possibly waited for the first reply together with `request`,
/// and `request` itself. They are decided in any order.
fn waiting_with<'f>(
    facts: &'f Facts<'_>,
    request: &RequestRecord,
) -> impl Iterator<Item = &'f RequestRecord> {
    let (instance, end, waits) = (request.instance, request.end, request.begun < request.end);
    let together = move |one: &&RequestRecord| {
        waits && one.begun < one.end && one.instance == instance && one.begun <= end
    };
    facts.requests.iter().copied().filter(together)
}
