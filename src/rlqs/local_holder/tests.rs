//! Tests of local holders.

use super::*;
use crate::limit::Algorithm;

const KEY: CounterKey = CounterKey([1, 2]);
const RULE: RuleId = RuleId([3, 4]);

fn second(seconds: u64) -> Micros {
    Micros::from_secs(1_000 + seconds)
}

fn limit() -> Limit {
    let tier = |requests, seconds| Tier {
        requests,
        window: Micros::from_secs(seconds),
        burst: 0,
        calendar: None,
    };
    let tiers = Box::new([tier(100, 1), tier(600, 60)]);
    Limit { algorithm: Algorithm::SlidingWindow, tiers, count_denied: false }
}

fn share(max_tokens: u32, valid_until: Micros) -> LocalShare {
    let assignment = Assignment::Bucket { max_tokens, tokens_per_fill: 10, fill_seconds: 1 };
    LocalShare { assignment, valid_until, burst: 0 }
}

fn check(holders: &LocalHolders, hits: i64, now: Micros) -> LocalCheck {
    match holders.check(&limit(), &KEY, hits, now) {
        LocalState::Checked(check) => check,
        LocalState::Unknown => panic!("no holder"),
    }
}

/// The decision: allowed, remaining and used.
fn decided(holders: &LocalHolders, hits: i64, now: Micros) -> (bool, u64, u64) {
    let LocalCheck::Decided(decision) = check(holders, hits, now) else { panic!("no decision") };
    assert_eq!((decision.tier, decision.limit), (1, 600), "the tier with the lowest rate");
    (decision.allowed, decision.remaining, decision.used)
}

#[test]
fn a_holder_decides_by_its_share() {
    let holders = LocalHolders::new(10);
    assert!(matches!(holders.check(&limit(), &KEY, 1, second(0)), LocalState::Unknown));
    assert!(holders.add(&KEY, RULE, second(0)));
    assert_eq!(check(&holders, 0, second(0)), LocalCheck::ByCounter);
    holders.assign(&KEY, share(20, second(12)), second(0));
    assert_eq!(decided(&holders, 0, second(0)), (true, 20, 0));
    assert_eq!(decided(&holders, 15, second(0)), (true, 5, 15));
    assert_eq!(decided(&holders, 6, second(0)), (false, 5, 15));
    assert_eq!(decided(&holders, -3, second(0)), (true, 8, 12));
    assert_eq!(decided(&holders, 100, second(5)), (true, 0, 20), "the limit fits a full bucket");
    assert_eq!(decided(&holders, i64::MIN, second(5)), (true, 20, 0), "a refund of everything");
    assert_eq!(decided(&holders, i64::MAX, second(5)), (false, 20, 0));
    assert_eq!(check(&holders, 1, second(12)), LocalCheck::ByCounter, "renewed too late");
    holders.assign(&KEY, share(20, second(24)), second(12));
    assert_eq!(decided(&holders, 1, second(12)), (true, 19, 1));
}

#[test]
fn hits_are_reported_once_and_idle_holders_removed() {
    let holders = LocalHolders::new(10);
    let uses = |now| {
        let uses = (0..SHARDS).flat_map(|shard| holders.take_uses(shard, now));
        uses.map(|used| (used.hits, used.is_idle)).collect::<Vec<_>>()
    };
    assert!(holders.add(&KEY, RULE, second(0)));
    holders.assign(&KEY, share(20, second(99)), second(0));
    for hits in [19, 5, -2] {
        check(&holders, hits, second(0));
    }
    assert_eq!(uses(second(1)), [(22, false)], "denied hits count too");
    assert_eq!(uses(second(9)), [(0, false)], "full, but not quiet for long enough");
    assert!(!holders.remove(&KEY, second(9), second(22)));
    assert_eq!(uses(second(10)), [(0, true)]);
    check(&holders, 1, second(10));
    assert!(!holders.remove(&KEY, second(10), second(23)), "used since");
    holders.end(&KEY, second(23));
    holders.end(&KEY, second(23));
    assert_eq!((uses(second(20)), holders.len()), (vec![], 0));
}

#[test]
fn the_number_is_bounded() {
    let holders = LocalHolders::new(2);
    let add = |number| holders.add(&CounterKey([number, number]), RULE, second(0));
    assert_eq!([1, 2, 2, 3].map(add), [true, true, true, false]);
    assert!(holders.remove(&CounterKey([1, 1]), second(10), second(23)));
    holders.expire(second(22));
    assert_eq!((holders.len(), add(3)), (1, false), "its quota is left");
    holders.expire(second(23));
    assert_eq!([3, 4].map(add), [true, false]);
    assert_eq!(holders.len(), 2);
}

/// The burst of a share that others have to give first does not wait for it.
#[test]
fn the_first_share_has_its_burst_at_once() {
    let holders = LocalHolders::new(10);
    assert!(holders.add(&KEY, RULE, second(0)));
    let (assignment, valid_until) = (Assignment::DenyAll, second(12));
    holders.assign(&KEY, LocalShare { assignment, valid_until, burst: 5 }, second(0));
    assert_eq!(decided(&holders, 6, second(0)), (false, 5, 0));
    assert_eq!(decided(&holders, 3, second(0)), (true, 2, 0));
    assert_eq!(decided(&holders, -1, second(0)), (true, 2, 0), "no more than there is");
    holders.assign(&KEY, LocalShare { assignment, valid_until, burst: 5 }, second(5));
    assert_eq!(decided(&holders, 2, second(5)), (true, 0, 0));
    assert_eq!(decided(&holders, 1, second(11)), (false, 0, 0));
    holders.assign(&KEY, LocalShare { burst: 20, ..share(20, second(24)) }, second(11));
    assert_eq!(decided(&holders, 1, second(11)), (false, 0, 20), "it was used");
}

/// What the counter allowed before the first share is a debt of it, of at most one limit.
#[test]
fn the_first_share_begins_with_a_debt() {
    let holders = LocalHolders::new(10);
    assert!(holders.add(&KEY, RULE, second(0)));
    for hits in [25, -5] {
        assert_eq!(check(&holders, hits, second(0)), LocalCheck::ByCounter);
        holders.charge(&limit(), &KEY, hits, second(0));
    }
    holders.assign(&KEY, share(10, second(12)), second(0));
    assert_eq!(decided(&holders, 1, second(0)), (false, 0, 10));
    assert_eq!(decided(&holders, 1, second(1)), (false, 0, 10), "a debt of 10, and 10 per second");
    assert_eq!(decided(&holders, 5, second(2)), (true, 5, 5));
    // The renewal is late, and the counter allows a lot.
    assert_eq!(check(&holders, 500, second(12)), LocalCheck::ByCounter);
    holders.charge(&limit(), &KEY, 500, second(12));
    holders.assign(&KEY, share(10, second(99)), second(12));
    assert_eq!(decided(&holders, 1, second(22)), (false, 0, 10), "100 hits is the most at once");
    assert_eq!(decided(&holders, 10, second(23)), (true, 0, 10));
    let other = CounterKey([5, 2]);
    holders.charge(&limit(), &other, 5, second(0));
    assert!(holders.add(&other, RULE, second(0)), "no holder, no debt");
}
