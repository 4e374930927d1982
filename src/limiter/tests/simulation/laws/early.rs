//! Early denials: a request may be denied only if its hits did not fit.

use super::*;
use crate::step::{GcraTime, StepParams};

/// How long a denial may outlast the state of Redis that caused it.
const REMEMBERED: Micros = Micros::SECOND;

/// A denial of an exact counter: at some instant from one second before the request until its
/// response, Redis had no room for the hits.
pub(super) const BESIDE_REDIS: Law = Law {
    name: "early denial",
    applies: |facts| {
        // Denied hits that count are reported to Redis later.
        let exact = facts.mode == Mode::Exact && !facts.limit.count_denied;
        exact && facts.same_rules && denied(facts).next().is_some()
    },
    contradiction: beside_redis,
};

/// A denial of a leased counter of several instances: the same. Redis also has the credits that are not
/// spent, and those of a bucket that drain before they are.
pub(super) const BESIDE_CREDITS: Law = Law {
    name: "early denial beside credits",
    applies: |facts| {
        let leased = facts.mode == Mode::Leased && facts.instances() > 1;
        leased && facts.same_rules && denied(facts).next().is_some()
    },
    contradiction: beside_redis,
};

/// A denial of a leased or synced counter: the hits did not fit in addition to all hits that
/// passed, and to the credits that other instances had.
pub(super) const BESIDE_HITS: Law = Law {
    name: "early denial beside all hits",
    applies: |facts| {
        let all_counted = facts.counts_all();
        let modelled = match facts.mode {
            Mode::Exact => false,
            Mode::Leased => facts.instances() == 1 || all_counted,
            Mode::Synced { .. } => true,
        };
        // Redis cannot tell whose hits returned after an exchange without an outcome. Hits that
        // have left the counter do not return.
        let traced = all_counted && (facts.fault_free || facts.instances() == 1);
        let traced = traced || !facts.gives_back();
        let same = facts.same_rules && facts.never_deleted;
        modelled && traced && same && denied(facts).next().is_some()
    },
    contradiction: beside_hits,
};

fn beside_redis(facts: &Facts<'_>) -> Option<String> {
    let steps: Vec<_> = facts.history.applied.iter().filter(|one| one.key == facts.key).collect();
    denied(facts).find_map(|request| {
        let since = request.begun.saturating_sub(REMEMBERED);
        let before = steps.iter().rev().find(|one| one.at <= since);
        let before = before.and_then(|one| one.state.clone());
        let later = steps.iter().filter(|one| one.at > since && one.at <= request.end);
        let later = later.map(|one| one.state.clone());
        // A request is decided as of the instant at which it arrived.
        let mut seen = std::iter::once(before).chain(later);
        let around = facts.around(request.begun);
        let fits =
            seen.all(|state| around.iter().all(|&now| facts.allows(&state, request.hits, now)));
        fits.then(|| {
            let (from, to) = (facts.ms(request.begun), facts.ms(request.end));
            format!(
                "i{} denied {} hits at {from}..{to} ms, for which Redis had room since {} ms",
                request.instance,
                request.hits,
                facts.ms(since),
            )
        })
    })
}

fn beside_hits(facts: &Facts<'_>) -> Option<String> {
    let leased = facts.mode == Mode::Leased;
    let in_order =
        |request: &&RequestRecord| facts.counts_all() || !order::is_overtaken(facts, request);
    denied(facts).filter(in_order).find_map(|request| {
        let held = if leased {
            held_by_others(facts, request) + overtaking_credits(facts, request)
        } else {
            0
        };
        let early = |now| facts.allows(&model(facts, request, now), request.hits + held, now);
        facts.around(request.begun).into_iter().all(early).then(|| {
            let (from, to) = (facts.ms(request.begun), facts.ms(request.end));
            let used = facts.used(&model(facts, request, request.begun), request.begun);
            format!(
                "i{} denied {} hits at {from}..{to} ms, {used} used, {held} credits elsewhere",
                request.instance, request.hits,
            )
        })
    })
}

fn denied<'f>(facts: &'f Facts<'_>) -> impl Iterator<Item = &'f RequestRecord> {
    let denied = |request: &&RequestRecord| {
        request.decided == Decided::Denied && request.hits > 0 && request.kind == RequestKind::Hits
    };
    facts.requests.iter().copied().filter(denied)
}

/// A counter of all hits that passed until the end of `request`, which counts at `now`. It is as full
/// as it possibly was: hits that possibly passed count, at the instant at which they fill it most,
/// and hits that were possibly not given back yet do not return.
fn model(facts: &Facts<'_>, request: &RequestRecord, now: Micros) -> Option<State> {
    let bucket = matches!(facts.limit.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    let mut steps: Vec<(Micros, i64)> = Vec::new();
    for one in &facts.requests {
        // A request without a decision took possibly part, and its hits are possibly counted.
        let hits = match one.decided {
            Decided::Freed | Decided::Failed(_) => one.hits,
            _ => one.passed(),
        };
        if hits > 0 && one.begun <= request.end {
            // A later window would hide the hits. A bucket counts them as of the
            // instant at which they arrived.
            let at = order::latest_before(facts, one).saturating_add(facts.clock_error);
            steps.push((if bucket { at } else { at.min(now) }, hits));
        }
        // Hits that are given back reach the other synced instances as hits do. In the other modes
        // they end cached denials.
        let known = match facts.mode {
            _ if one.instance == request.instance => Micros::ZERO,
            Mode::Synced { .. } => facts.propagation_time(),
            Mode::Exact | Mode::Leased => REMEMBERED,
        };
        if one.end.saturating_add(known) <= request.begun && one.returned() > 0 {
            steps.push((one.end, -one.returned()));
        }
    }
    for lost in facts.lost.iter().filter(|lost| lost.sent <= request.end) {
        let hits = lost.step.hits;
        if hits > 0 && lost.may_have_run {
            // In a bucket, the credits that were drawn before drain first.
            let leased = facts.mode == Mode::Leased;
            let before = if leased && bucket { undrained(facts, lost.sent) } else { 0 };
            // By the estimate of its instance, it was possibly sent in a later window.
            let at = lost.sent.max(lost.step.now);
            steps.push((at.min(now), hits + before));
            continue;
        }
        // Hits that were to return, and possibly stay counted. A leased instance does not send them
        // again, and a synced one only if they certainly did not arrive.
        let stays = match facts.mode {
            Mode::Exact => false,
            Mode::Leased => lost.may_have_run || !bucket,
            Mode::Synced { .. } => lost.may_have_run,
        };
        if hits < 0 && stays {
            // A leased return in a bucket is of a span that is no whole number of hits.
            let (at, part) = match facts.mode {
                Mode::Leased if bucket => (lost.sent, 1),
                Mode::Leased => (lost.step.now.min(now), 0),
                _ => (lost.sent.min(now), 0),
            };
            steps.push((at, part - hits));
        }
    }
    let floored = floored::floored(facts, request.end);
    if floored > 0 {
        steps.push((now, floored));
    }
    steps.sort_by_key(|(at, _)| *at);
    let mut state = None;
    for (at, hits) in steps {
        let mut step = algorithm::plan(&facts.limit, hits, at);
        step.count_denied = true;
        if let StepParams::Gcra(tiers) = &mut step.params {
            for tier in tiers {
                tier.latest_denied = GcraTime::LAST;
            }
        }
        step.apply(&mut state);
    }
    state
}

/// The most credits that were in a bucket in Redis at `at`: hits that were drawn and not spent, and
/// have not drained.
fn undrained(facts: &Facts<'_>, at: Micros) -> i64 {
    let held: i64 = (0..facts.instances()).map(|one| facts.held(one, at).max(0)).sum();
    // With several tiers, one is reported, and credits drain later from another.
    if facts.limit.tiers.len() > 1 {
        return held;
    }
    let mut latest = facts.history.applied.iter().rev();
    let latest = latest.find(|one| one.key == facts.key && one.at <= at);
    let [from, _] = facts.around(at);
    held.min(facts.used(&latest.and_then(|one| one.state.clone()), from))
}

/// The most credits that the other instances had drawn and not spent, at any instant at which the
/// denial of `request` was possibly made.
fn held_by_others(facts: &Facts<'_>, request: &RequestRecord) -> i64 {
    let since = request.begun.saturating_sub(REMEMBERED);
    let at = |at: Micros| -> i64 {
        let others = (0..facts.instances()).filter(|&other| other != request.instance);
        others.map(|other| facts.held(other, at).max(0)).sum()
    };
    let changes = facts.history.applied.iter().map(|one| one.at);
    let changes = changes.filter(|&at| at > since && at <= request.end);
    changes.chain([since, request.end]).map(at).max().unwrap_or(0)
}

/// The credits that the instance of `request` had because of requests after `request`, if Redis decided
/// `request` after it had drawn them. Then the instance had no pool, and no credit, when `request` arrived.
fn overtaking_credits(facts: &Facts<'_>, request: &RequestRecord) -> i64 {
    let Some(own) = order::own_step(facts, request) else { return 0 };
    let before = facts.history.applied[..own].iter();
    let before = before.filter(|one| one.key == facts.key && one.instance == request.instance);
    let drawn = before.filter(|one| one.allowed && one.at >= request.begun);
    let drawn: i64 = drawn.map(|one| one.added().max(0)).sum();
    drawn.min(facts.held(request.instance, facts.history.applied[own].at).max(0))
}
