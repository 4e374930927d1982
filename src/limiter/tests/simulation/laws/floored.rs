//! Refunds through a synced instance that lacks the hits: a counter does not fall below zero, so
//! these hits stay counted.

use super::*;

/// The most hits that stay counted because of requests that began until `until`.
///
/// A refund takes less than its hits from a replica only if its instance lacks hits that are in
/// flight from others. `docs/design/modes.md` shows that what stays counted is at most what one
/// instance lacked at one refund. So the largest of these numbers counts, and not their sum.
pub(super) fn floored(facts: &Facts<'_>, until: Micros) -> i64 {
    if !facts.ever_has(2) {
        return 0;
    }
    let instances = facts.instances();
    // What stays counted because of refunds through each instance.
    let mut stays = vec![0; instances];
    let back =
        |request: &&&RequestRecord| request.returned() > 0 || request.decided == Decided::Freed;
    let refunds = facts.requests.iter().filter(back).filter(|refund| refund.begun <= until);
    for refund in refunds {
        let lacks = |since| {
            let of = |other| in_flight(facts, other, since, [refund.end; 2]) + stays[other];
            let others = (0..instances).filter(|&other| other != refund.instance);
            let lacks: i64 = others.map(|other| of(other).max(0)).sum();
            // After a reload, the instance may have a replica that does not decide the refund.
            let before = refund.begun.saturating_sub(Micros(1));
            let own = in_flight(facts, refund.instance, since, [refund.end, before]);
            lacks + if facts.same_rules { 0 } else { own.max(0) }
        };
        // The reply was of any instant since then. Hits that others gave back may have arrived before
        // hits that they took.
        let known = known(facts, refund);
        let changes = facts.history.applied.iter().filter(|one| one.key == facts.key);
        let changes = changes.map(|one| one.at).filter(|&at| known < at && at <= refund.end);
        let most = changes.chain([known]).map(lacks).max().unwrap_or(0);
        stays[refund.instance] = most.max(stays[refund.instance]);
    }
    stays.into_iter().max().unwrap_or(0)
}

/// An instant until which the instance of a refund knows the counter in Redis: its last call that
/// ended before the decision was sent then.
fn known(facts: &Facts<'_>, refund: &RequestRecord) -> Micros {
    let waits = refund.begun < refund.end;
    let calls = facts.history.calls.iter();
    let calls = calls.filter(|call| call.key == facts.key && call.instance == refund.instance);
    let before = calls.filter(|call| {
        let ended = call.ended < refund.end || (waits && call.ended == refund.end);
        ended && !call.failed()
    });
    // Without any call, Redis decides the refund.
    before.map(|call| call.sent).max().unwrap_or(refund.begun)
}

/// The hits of an instance that were not in Redis before `since`: those that it took until the first
/// instant of `until`, less those that it gave back until the second. It is negative if Redis had
/// more.
fn in_flight(facts: &Facts<'_>, instance: usize, since: Micros, until: [Micros; 2]) -> i64 {
    let requests = facts.requests.iter().filter(|request| request.instance == instance);
    let hits = requests.map(|request| {
        let (taken, back) = match request.decided {
            Decided::Freed => (request.hits, request.hits),
            _ => (request.passed(), request.returned()),
        };
        let taken = if request.begun <= until[0] { taken } else { 0 };
        if request.end <= until[1] { taken - back } else { taken }
    });
    let applied = facts.history.applied.iter().filter(|one| one.key == facts.key);
    let arrived = applied.filter(|one| one.instance == instance && one.at < since);
    hits.sum::<i64>() - arrived.map(|one| one.added()).sum::<i64>()
}
