//! Never over the limit (exact, leased), and bounded overrun (synced).

use limit_oracle::{Allowed, Law as Oracle, Tier, violation};

use super::*;

/// The hits that passed are within the limit in every window and interval.
pub(super) const NEVER: Law = Law {
    name: "never over",
    applies: |facts| {
        let slots = facts.limit.algorithm == Algorithm::Concurrency;
        let traced = slots || !(facts.gives_back() || facts.counter.reserves);
        facts.is_strict() && facts.same_rules && facts.never_deleted && traced && facts.passes()
    },
    contradiction: never,
};

/// The same with hits that return, for windows that have not ended.
pub(super) const WITH_REFUNDS: Law = Law {
    name: "never over with refunds",
    applies: |facts| {
        let counted = facts.counts_all() && !facts.counter.reserves;
        let same = facts.same_rules && facts.never_deleted;
        facts.is_strict() && counted && same && facts.gives_back() && facts.passes()
    },
    contradiction: with_refunds,
};

/// A synced limit is exceeded by at most the hits of the others in one interval.
pub(super) const SYNCED: Law = Law {
    name: "overrun",
    applies: |facts| {
        let synced = matches!(facts.mode, Mode::Synced { .. }) && facts.instances() > 1;
        let counted = facts.counts_all() && !facts.gives_back();
        synced
            && counted
            && facts.same_rules
            && facts.never_deleted
            && facts.fault_free
            && facts.passes()
    },
    contradiction: synced,
};

fn never(facts: &Facts<'_>) -> Option<String> {
    let passed: Vec<Allowed> = facts
        .requests
        .iter()
        .filter(|request| request.passed() > 0)
        .map(|request| {
            let ([from, _], [_, to]) = (facts.around(request.begun), facts.around(request.end));
            Allowed { hits: request.passed().unsigned_abs(), from: from.0, to: to.0 }
        })
        .collect();
    let tiers: Vec<Tier> = (facts.limit.tiers.iter())
        .map(|tier| Tier { requests: tier.requests, window: tier.window.0, burst: tier.burst })
        .collect();
    match facts.limit.algorithm {
        Algorithm::FixedWindow => violation(Oracle::FixedWindow, &tiers, &passed),
        Algorithm::SlidingWindow => violation(Oracle::SlidingWindow, &tiers, &passed),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            violation(Oracle::Bucket, &tiers, &passed)
        }
        Algorithm::SlidingWindowLog => log(&tiers, &passed),
        Algorithm::Concurrency => slots(facts),
    }
}

/// At most `requests` hits in every span shorter than the window.
fn log(tiers: &[Tier], passed: &[Allowed]) -> Option<String> {
    for (tier, first) in tiers.iter().flat_map(|tier| passed.iter().map(move |one| (tier, one))) {
        let within = |one: &&Allowed| one.from >= first.from && one.to < first.from + tier.window;
        let hits: u64 = passed.iter().filter(within).map(|one| one.hits).sum();
        if hits > tier.requests {
            return Some(format!("{hits} hits in {tier:?} from {first:?}"));
        }
    }
    None
}

/// Slots that are certainly held at the same time.
fn slots(facts: &Facts<'_>) -> Option<String> {
    let max = facts.limit.tiers[0].requests as i64;
    let released = |index: usize| {
        let closing = |request: &&&RequestRecord| request.kind == RequestKind::Closes(index);
        let first = facts.requests.iter().filter(closing).map(|request| request.begun).min();
        first.unwrap_or(facts.history.end)
    };
    let held: Vec<_> = (facts.history.requests.iter().enumerate())
        .filter(|(_, request)| facts.schedule.counters[request.counter] == facts.counter)
        .filter(|(_, request)| request.passed() > 0)
        .map(|(index, request)| (request.end, released(index), request.passed()))
        .collect();
    held.iter().find_map(|&(at, _, _)| {
        let now = held.iter().filter(|(from, to, _)| *from <= at && at < *to);
        let hits: i64 = now.map(|(_, _, hits)| hits).sum();
        (hits > max).then(|| format!("{hits} of {max} slots at {} ms", facts.ms(at)))
    })
}

fn with_refunds(facts: &Facts<'_>) -> Option<String> {
    let max = facts.limit.tiers[0].requests as i64;
    facts.requests.iter().filter(|request| request.passed() > 0).find_map(|request| {
        let passed = facts.requests.iter().filter(|one| one.end <= request.end);
        let passed: i64 = passed.map(|one| one.passed()).sum();
        let back = facts.requests.iter().filter(|one| one.begun <= request.end);
        let back: i64 = back.map(|one| (-one.hits).max(0)).sum();
        let what = || format!("{passed} - {back} of {max} hits at {} ms", facts.ms(request.end));
        (passed - back > max).then(what)
    })
}

fn synced(facts: &Facts<'_>) -> Option<String> {
    let max = facts.limit.tiers[0].requests as i64;
    let span = facts.propagation_time();
    facts.requests.iter().filter(|request| request.passed() > 0).find_map(|request| {
        let all = facts.requests.iter().filter(|one| one.end <= request.end);
        let all: i64 = all.map(|one| one.passed()).sum();
        let since = request.begun.saturating_sub(span);
        let others = |one: &&&RequestRecord| one.instance != request.instance && one.end >= since;
        let others: i64 = facts.requests.iter().filter(others).map(|one| one.passed()).sum();
        (all - max > others).then(|| {
            let at = facts.ms(request.end);
            format!("{all} of {max} hits at {at} ms, and the others had {others} in {span:?}")
        })
    })
}
