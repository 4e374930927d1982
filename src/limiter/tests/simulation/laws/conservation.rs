//! Conservation: Redis has every hit that passed, once, and no other.

use super::*;

/// After the end of all instances, a window that has not ended has the hits that passed.
pub(super) const WINDOWS: Law = Law {
    name: "conservation",
    applies: |facts| facts.counts_all() && facts.never_deleted,
    contradiction: windows,
};

/// Slots that were released are free again, and all others are taken.
pub(super) const SLOTS: Law = Law {
    name: "slots",
    applies: |facts| {
        facts.limit.algorithm == Algorithm::Concurrency && facts.never_deleted && facts.fault_free
    },
    contradiction: slots,
};

fn windows(facts: &Facts<'_>) -> Option<String> {
    let count = facts.used(&facts.history.state(&facts.key), facts.history.end);
    let mut passed: i64 =
        facts.requests.iter().map(|request| request.passed() - request.returned()).sum();
    for request in &facts.requests {
        if let (RequestKind::Closes(opened), Decided::Passed) = (request.kind, request.decided) {
            passed += request.hits.abs() - facts.history.requests[opened].hits;
        }
    }
    let denied = |request: &&&RequestRecord| request.decided == Decided::Denied;
    let denied: i64 = facts.requests.iter().filter(denied).map(|request| request.hits).sum();
    let counts_denied = facts.limit.count_denied || !facts.same_rules;
    let denied = if counts_denied { denied } else { 0 };
    let stays = floored::floored(facts, facts.history.end);
    if facts.fault_free {
        let most = passed + denied + stays;
        return (count < passed || count > most)
            .then(|| format!("{passed} hits passed, and Redis has {count}"));
    }
    // Hits that return possibly never arrived.
    let back = |request: &&RequestRecord| match (request.kind, request.decided) {
        (RequestKind::Closes(_), _) | (_, Decided::Freed) => request.hits.abs(),
        _ => 0,
    };
    let back: i64 = facts.requests.iter().map(back).sum();
    let back = back + failed_refunds(facts) + lost_hits(facts, -1, true);
    let opened = |request: &&&RequestRecord| matches!(request.kind, RequestKind::Closes(_));
    let opened = facts.requests.iter().filter(opened).map(|request| match request.kind {
        RequestKind::Closes(opened) => facts.history.requests[opened].hits,
        RequestKind::Hits => 0,
    });
    let opened: i64 = opened.sum();
    let stays = stays + unreturned(facts) + unreported(facts) + unsent(facts);
    let most = passed + denied + lost_hits(facts, 1, true) + back + opened + stays;
    // Redis cannot tell hits of several instances from each other after an unknown exchange, and
    // an instance that ends while Redis is down loses what it has not sent.
    let least = if facts.ever_has(2) { i64::MIN } else { passed - back - opened };
    (count > most || count < least).then(|| {
        format!("{passed} hits passed, {least}..={most} are explained, and Redis has {count}")
    })
}

/// Hits of calls without an outcome whose hits have this sign.
fn lost_hits(facts: &Facts<'_>, sign: i64, may_have_run: bool) -> i64 {
    let lost = facts.lost.iter().filter(|lost| lost.may_have_run == may_have_run);
    lost.map(|lost| (sign * lost.step.hits).max(0)).sum()
}

/// Hits of requests that were to give them back, and got no decision.
fn failed_refunds(facts: &Facts<'_>) -> i64 {
    let failed = |request: &&&RequestRecord| matches!(request.decided, Decided::Failed(_));
    facts.requests.iter().filter(failed).map(|request| (-request.hits).max(0)).sum()
}

/// Credits of leased counters that an instance was to return, and Redis certainly did not get. They
/// are not sent again.
fn unreturned(facts: &Facts<'_>) -> i64 {
    if facts.same_rules && facts.mode != Mode::Leased {
        return 0;
    }
    (lost_hits(facts, -1, false) - failed_refunds(facts)).max(0)
}

/// Credits that were not returned, because the call before failed: a report of denied hits. Only
/// rules that were leased, and then exact, need both.
fn unreported(facts: &Facts<'_>) -> i64 {
    if facts.same_rules || !facts.ever_has(1) {
        return 0;
    }
    let of = |instance: usize| -> i64 {
        let requests = || facts.requests.iter().filter(|request| request.instance == instance);
        let idle = |at: Micros| !requests().any(|request| request.begun <= at && at <= request.end);
        let calls = facts.history.calls.iter();
        let calls = calls.filter(|call| call.instance == instance && call.key == facts.key);
        let reports = calls.filter(|call| call.failed() && call.counts_denied() && idle(call.sent));
        reports.map(|call| facts.held(instance, call.sent).max(0)).max().unwrap_or(0)
    };
    (0..facts.instances()).map(of).sum()
}

/// Hits that were given back to a replica, and that its instance has not sent before its end. Only
/// an instance whose last call failed has such hits.
fn unsent(facts: &Facts<'_>) -> i64 {
    if facts.same_rules && !matches!(facts.mode, Mode::Synced { .. }) {
        return 0;
    }
    let of = |instance: usize| -> i64 {
        let calls = facts.history.calls.iter();
        let calls =
            || calls.clone().filter(|call| call.instance == instance && call.key == facts.key);
        if !calls().next_back().is_some_and(|last| last.failed()) {
            return 0;
        }
        let since = calls().filter_map(|call| call.gave_back()).max().unwrap_or_default();
        let back = facts.requests.iter().filter(|request| request.instance == instance);
        back.filter(|request| request.end >= since).map(|request| request.returned()).sum()
    };
    (0..facts.instances()).map(of).sum()
}

fn slots(facts: &Facts<'_>) -> Option<String> {
    let used = facts.used(&facts.history.state(&facts.key), facts.history.end);
    let taken: i64 = facts.requests.iter().map(|request| request.passed()).sum();
    let released = |request: &&RequestRecord| match (request.kind, request.decided) {
        (RequestKind::Closes(_), Decided::Passed) => request.hits.abs(),
        _ => 0,
    };
    let released: i64 = facts.requests.iter().map(released).sum();
    (used != taken - released)
        .then(|| format!("{taken} slots taken, {released} released, and {used} are in use"))
}
