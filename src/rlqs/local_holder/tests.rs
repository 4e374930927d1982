//! Tests of local holders.

use super::*;
use crate::limit::Algorithm;
use crate::quota::Assignment;

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
    LocalShare { assignment, valid_until }
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
    assert_eq!(check(&holders, 1, second(0)), LocalCheck::Joining);
    holders.assign(&KEY, share(20, second(12)), second(0));
    assert_eq!(decided(&holders, 0, second(0)), (true, 20, 0));
    assert_eq!(decided(&holders, 15, second(0)), (true, 5, 15));
    assert_eq!(decided(&holders, 6, second(0)), (false, 5, 15));
    assert_eq!(decided(&holders, -3, second(0)), (true, 8, 12));
    assert_eq!(decided(&holders, 100, second(5)), (true, 0, 20), "the limit fits a full bucket");
    assert_eq!(decided(&holders, i64::MIN, second(5)), (true, 20, 0), "a refund of everything");
    assert_eq!(decided(&holders, i64::MAX, second(5)), (false, 20, 0));
    assert_eq!(check(&holders, 1, second(12)), LocalCheck::NotDivided, "renewed too late");
    holders.fail(&KEY, StoreError::BreakerOpen);
    assert_eq!(check(&holders, 1, second(12)), LocalCheck::Failed(StoreError::BreakerOpen));
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
    assert!(!holders.remove(&KEY, true, second(9), second(22)));
    assert_eq!(uses(second(10)), [(0, true)]);
    check(&holders, 1, second(10));
    assert!(!holders.remove(&KEY, true, second(10), second(23)), "used since");
    assert!(holders.remove(&KEY, false, second(10), second(23)));
    assert!(!holders.remove(&KEY, false, second(10), second(23)));
    assert_eq!((uses(second(20)), holders.len()), (vec![], 0));
}

#[test]
fn the_number_is_bounded() {
    let holders = LocalHolders::new(2);
    let add = |number| holders.add(&CounterKey([number, number]), RULE, second(0));
    assert_eq!([1, 2, 2, 3].map(add), [true, true, true, false]);
    assert!(holders.remove(&CounterKey([1, 1]), true, second(10), second(23)));
    holders.expire(second(22));
    assert_eq!((holders.len(), add(3)), (1, false), "its quota is left");
    holders.expire(second(23));
    assert_eq!([3, 4].map(add), [true, false]);
    assert_eq!(holders.len(), 2);
}

/// A waiting call ends when the share arrives, and when the ledger fails.
#[tokio::test]
async fn a_call_waits_for_the_first_share() {
    let holders = LocalHolders::new(2);
    assert_eq!(holders.joined(&KEY).await, Ok(()), "no holder");
    assert!(holders.add(&KEY, RULE, second(0)));
    let fail = async { holders.fail(&KEY, StoreError::Busy) };
    let (joined, ()) = tokio::join!(holders.joined(&KEY), fail);
    assert_eq!(joined, Err(StoreError::Busy));
    assert_eq!(check(&holders, 1, second(0)), LocalCheck::Failed(StoreError::Busy));
    let other = CounterKey([5, 2]);
    assert!(holders.add(&other, RULE, second(0)));
    let assign = async { holders.assign(&other, share(1, second(9)), second(0)) };
    let (joined, ()) = tokio::join!(holders.joined(&other), assign);
    assert_eq!(joined, Ok(()));
}
