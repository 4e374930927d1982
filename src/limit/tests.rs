//! Tests of the bounds of limits, and of the units.

use super::*;

#[test]
fn every_bound_is_checked_per_algorithm() {
    use Algorithm::*;
    let check = |algorithm, requests, window, burst| {
        let tiers = Box::new([Tier { requests, window: Micros(window), burst, calendar: None }]);
        Limit { algorithm, tiers, count_denied: false }.check()
    };
    assert_eq!(check(FixedWindow, HITS_END - 1, 1, 0), Ok(()));
    assert_eq!(check(FixedWindow, HITS_END, 1, 0), Err(LimitError::Requests(HITS_END, HITS_END)));
    assert_eq!(check(FixedWindow, 1, 0, 0), Err(LimitError::NoWindow));
    assert_eq!(check(FixedWindow, 1, WINDOW_MAX.0, 0), Ok(()));
    assert!(check(FixedWindow, 1, WINDOW_MAX.0 + 1, 0).is_err());
    assert_eq!(check(SlidingWindow, SLIDING_REQUESTS_END - 1, 1, 0), Ok(()));
    assert!(check(SlidingWindow, SLIDING_REQUESTS_END, 1, 0).is_err());
    assert_eq!(check(SlidingWindowLog, 100_000, 1, 0), Ok(()));
    let log = check(SlidingWindowLog, 100_001, 1, 0).expect_err("too many");
    assert!(log.to_string().contains("algorithm: sliding_window`"), "{log}");
    assert_eq!(check(Concurrency, 100_001, 1, 0), Err(LimitError::Slots(100_001)));
    assert_eq!(check(Concurrency, HITS_END, 1, 0), Err(LimitError::Slots(HITS_END)));
    assert_eq!(check(LeakyBucket, 0, 1, HITS_END), Err(LimitError::Burst(HITS_END)));
    assert_eq!(check(TokenBucket, 10, 1, 0), Err(LimitError::NoBurst));
    assert_eq!(check(TokenBucket, 0, 1, 0), Ok(()));
    assert_eq!(check(LeakyBucket, 1, 1, FILL_MAX.0), Ok(()));
    assert!(check(LeakyBucket, 1, 1, FILL_MAX.0 + 1).is_err());
    let calendar = Calendar { period: Period::Month, zone: Zone::UTC, starts: WindowStart::FIRST };
    for algorithm in Algorithm::ALL {
        let tiers = Box::new([Tier::by_calendar(1, calendar)]);
        let limit = Limit { algorithm, tiers, count_denied: false };
        let expected = match algorithm {
            FixedWindow => Ok(()),
            _ => Err(LimitError::Calendar(algorithm)),
        };
        assert_eq!(limit.check(), expected);
        assert!(limit.has_calendar());
    }
    assert!(!Limit::fixed_window(1, Micros(1)).has_calendar());
    let bucket = LimitError::Calendar(TokenBucket).to_string();
    assert!(bucket.starts_with("token_bucket cannot follow the calendar; use "), "{bucket}");
    let empty = Limit { tiers: Box::new([]), ..Limit::fixed_window(1, Micros(1)) };
    assert_eq!(empty.check(), Err(LimitError::Tiers(0)));
    let mut slots = Limit::fixed_window(1, Micros(1));
    slots.algorithm = Concurrency;
    assert_eq!(slots.check(), Err(LimitError::DeniedSlots));
    slots.tiers = Box::new([Tier { window: Micros::ZERO, ..slots.tiers[0] }; 17]);
    let problems: Vec<_> = slots.problems().map(|(tier, _)| tier).collect();
    assert_eq!(problems[..2], [None, None], "too many tiers, and denied slots");
    assert!((0..17).map(Some).eq(problems[2..].iter().copied()), "{problems:?}");
}

#[test]
fn units_are_found_by_name_and_length() {
    for unit in Unit::ALL {
        assert_eq!(Unit::from_name(&unit.name().to_uppercase()), Some(unit));
        assert_eq!(Unit::of_window(unit.window()), Some(unit));
    }
    assert_eq!(Unit::from_name("unknown"), None);
    assert_eq!(Unit::of_window(Micros::from_secs(10)), None);
}
