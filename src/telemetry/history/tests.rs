//! Tests of the history, on virtual time.

use super::*;

const START: Micros = Micros::from_secs(1_000);

fn at(tick: u64) -> Micros {
    START.saturating_add(Micros(TICK.0 * tick))
}

/// A rule with `within` and `over` decisions since the start, `decisions` of them in this tick.
fn changed(key: u32, within: u64, over: u64, decisions: u64, is_new: bool) -> ChangedRule<u32> {
    let all = within.wrapping_add(over);
    let totals =
        OutcomeTotals { hits: all, within, over, decisions: all, ..OutcomeTotals::default() };
    ChangedRule { key, totals, decisions, is_new }
}

fn last_ticks(history: &History<u32>, key: u32, number: usize) -> [Vec<Option<u32>>; 2] {
    let read = history.read(key).expect("a history");
    let [within, _, over, _] = read.ticks;
    assert_eq!((within.len(), over.len()), (TICKS, TICKS));
    [within, over].map(|ticks| ticks[TICKS - number..].to_vec())
}

#[test]
fn ticks_have_the_decisions_between_them() {
    let mut history = History::new(START);
    assert_eq!((history.until(), history.read(1)), (None, None));
    history.tick(at(1), &[changed(1, 20, 5, 25, true)]);
    history.tick(at(2), &[]);
    history.tick(at(3), &[changed(1, 120, 5, 100, false)]);
    assert_eq!(history.until(), Some(at(3)));
    let [within, over] = last_ticks(&history, 1, 4);
    assert_eq!(within, [None, Some(20), Some(0), Some(100)]);
    assert_eq!(over, [None, Some(5), Some(0), Some(0)]);
    let rates = history.read(1).and_then(|read| read.rates).expect("rates");
    assert_eq!((rates.within, rates.over, rates.hits), (10.0, 0.0, 10.0));
}

#[test]
fn a_history_has_sixty_ticks_and_small_numbers() {
    let mut history = History::new(START);
    let mut sum = 0;
    for tick in 1..=100 {
        sum += tick;
        history.tick(at(tick), &[changed(1, sum, 0, tick, tick == 1)]);
    }
    let read = history.read(1).expect("a history");
    let expected: Vec<Option<u32>> = (41..=100).map(Some).collect();
    assert_eq!(read.ticks[0], expected);
    history.tick(at(101), &[changed(1, sum + u64::from(u32::MAX) + 5, 0, 1, false)]);
    assert_eq!(last_ticks(&history, 1, 1)[0], [Some(u32::MAX - 1)]);
}

/// Sums of hits start at 0 again after 2^64.
#[test]
fn rates_survive_a_wrapped_sum() {
    let before = OutcomeTotals { hits: u64::MAX - 4, ..OutcomeTotals::default() };
    let after = OutcomeTotals { hits: 5, ..OutcomeTotals::default() };
    assert_eq!(after.since(&before).rates(TICK).hits, 1.0);
}

#[test]
fn a_run_of_denials_has_its_start() {
    let mut history = History::new(START);
    let since = |history: &History<u32>| history.read(1).and_then(|read| read.denied_since);
    history.tick(at(1), &[changed(1, 1, 0, 1, true)]);
    assert_eq!(since(&history), None);
    for tick in 2..=80 {
        history.tick(at(tick), &[changed(1, 1, tick, 1, false)]);
        assert_eq!(since(&history), Some(at(1)), "the start of the first tick with a denial");
    }
    history.tick(at(81), &[changed(1, 2, 80, 1, false)]);
    assert_eq!(since(&history), None);
    history.tick(at(82), &[changed(1, 2, 81, 1, false)]);
    assert_eq!(since(&history), Some(at(81)));
    history.tick(at(83), &[]);
    assert_eq!(since(&history), None);
}

#[test]
fn ticks_of_a_pause_are_not_recorded() {
    let mut history = History::new(START);
    history.tick(at(1), &[changed(1, 10, 0, 10, true)]);
    history.tick(at(4), &[changed(1, 40, 0, 30, false)]);
    let [within, _] = last_ticks(&history, 1, 4);
    assert_eq!(within, [Some(10), None, None, Some(30)]);
    assert_eq!(history.read(1).and_then(|read| read.rates).map(|rates| rates.within), Some(1.0));
    history.tick(at(100_000), &[]);
    let [within, _] = last_ticks(&history, 1, TICKS);
    assert_eq!(within.iter().flatten().count(), 1, "only the last one is known");
}

#[test]
fn the_rules_with_recent_decisions_have_a_history() {
    let rules = RULES_MAX as u32;
    let mut history = History::new(START);
    let all: Vec<_> = (0..rules).map(|key| changed(key, 10, 0, 10, true)).collect();
    history.tick(at(1), &all);
    // All but the rule 7 decide again. A rule that is new replaces it.
    let again: Vec<_> = (0..rules).filter(|key| *key != 7).collect();
    let again = again.into_iter().map(|key| changed(key, 20, 0, 10, false));
    let newcomers = [changed(rules, 1, 0, 1, true), changed(rules + 1, 20, 0, 20, true)];
    let second: Vec<_> = again.chain(newcomers).collect();
    history.tick(at(2), &second);
    assert!(!history.has(7) && history.has(rules + 1) && !history.has(rules));
    assert_eq!(history.keys().count(), RULES_MAX);
    // More than twice as many decisions replace a rule that is not idle.
    let third: Vec<_> = (0..rules)
        .filter(|key| *key != 7)
        .map(|key| changed(key, 30, 0, 10, false))
        .chain([changed(rules + 1, 40, 0, 20, false), changed(7, 31, 0, 21, false)])
        .collect();
    history.tick(at(3), &third);
    assert!(history.has(7));
    assert_eq!(history.keys().count(), RULES_MAX);
    let read = history.read(7).expect("a history");
    assert_eq!(read.rates, None, "its totals at the start of the tick are not known");
    history.tick(at(4), &[changed(7, 41, 0, 10, false)]);
    assert_eq!(last_ticks(&history, 7, 2)[0], [None, Some(10)]);
}

#[test]
fn removed_rules_lose_their_history() {
    let mut history = History::new(START);
    history.tick(at(1), &[changed(1, 1, 0, 1, true), changed(2, 1, 0, 1, true)]);
    history.retain(&HashSet::from_iter([2]));
    assert!(!history.has(1) && history.has(2));
}

/// The bound that docs/operate/memory.md has.
#[test]
fn a_ring_has_its_documented_size() {
    assert!(size_of::<Ring>() <= 1_200, "{}", size_of::<Ring>());
}
