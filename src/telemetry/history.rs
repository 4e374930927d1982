//! The history of rules: their decisions per tick of 10 s, for the last ten minutes, in rings of bounded
//! memory.

use std::hash::Hash;

use hashbrown::{HashMap, HashSet};
use serde::Serialize;

use crate::time::Micros;

#[cfg(test)]
mod tests;

/// The length of a tick.
pub const TICK: Micros = Micros::from_secs(10);

/// The ticks of a history: ten minutes.
pub const TICKS: usize = 60;

/// The most rules with a history. A rule takes at most 1,200 bytes, so all take at most 2.4 MB.
pub(super) const RULES_MAX: usize = 2_000;

/// The number of a tick that was not recorded. Larger counts are stored as one less.
const UNKNOWN: u32 = u32::MAX;

/// Decisions and hits of a rule, since the start or within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutcomeTotals {
    /// Hits of all decisions but refunds. A sum starts at 0 again after 2^64.
    pub(super) hits: u64,
    /// Decisions with the outcome `within`.
    pub(super) within: u64,
    /// Decisions with the outcome `near`.
    pub(super) near: u64,
    /// Decisions with the outcome `over` or `blocked`.
    pub(super) over: u64,
    /// Decisions with the outcome `shadow`.
    pub(super) shadow: u64,
    /// Decisions with the outcome `fallback`.
    pub(super) fallback: u64,
    /// Decisions with any outcome.
    pub(super) decisions: u64,
}

/// Decisions and hits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RuleRates {
    /// Hits of all decisions but refunds.
    pub hits: f64,
    /// Decisions with the outcome `within`.
    pub within: f64,
    /// Decisions with the outcome `near`.
    pub near: f64,
    /// Decisions with the outcome `over` or `blocked`.
    pub over: f64,
    /// Decisions with the outcome `shadow`.
    pub shadow: f64,
    /// Decisions with the outcome `fallback`.
    pub fallback: f64,
}

/// A rule that has decided something during a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangedRule<K> {
    pub(super) key: K,
    /// The totals at the end of the tick.
    pub(super) totals: OutcomeTotals,
    /// The decisions during the tick.
    pub(super) decisions: u64,
    /// Whether it had decided nothing before the tick.
    pub(super) is_new: bool,
}

/// The history of one rule, for pages.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleHistory {
    /// The rates of the last tick; `None` if it was not recorded.
    pub rates: Option<RuleRates>,
    /// Decisions per tick, oldest first: `within`, `near`, `over` and `fallback`. `None` for a tick that
    /// was not recorded.
    pub ticks: [Vec<Option<u32>>; 4],
    /// The start of the run of ticks with denials that reaches until the end of the last tick.
    pub denied_since: Option<Micros>,
}

/// The histories of the rules with the most recent decisions. `K` names a rule.
#[derive(Debug)]
pub(super) struct History<K> {
    rings: HashMap<K, Ring>,
    /// The tick that is written next, in all rings. It has the oldest numbers.
    position: usize,
    /// The number of recorded ticks.
    recorded: u64,
    /// The end of the last tick, or the start of the process.
    until: Micros,
    /// The length of the last tick.
    length: Micros,
}

#[derive(Debug)]
struct Ring {
    ticks: [[u32; TICKS]; 4],
    /// The totals at the end of the last tick.
    totals: OutcomeTotals,
    /// The decisions of the last tick; `None` if it was not recorded.
    last: Option<OutcomeTotals>,
    /// The decisions of the tick `active`.
    decisions: u64,
    /// The number of the last tick with a decision.
    active: u64,
    denied_since: Option<Micros>,
}

impl OutcomeTotals {
    /// What was added since `before`.
    pub(super) fn since(&self, before: &OutcomeTotals) -> OutcomeTotals {
        OutcomeTotals {
            hits: self.hits.wrapping_sub(before.hits),
            within: self.within.wrapping_sub(before.within),
            near: self.near.wrapping_sub(before.near),
            over: self.over.wrapping_sub(before.over),
            shadow: self.shadow.wrapping_sub(before.shadow),
            fallback: self.fallback.wrapping_sub(before.fallback),
            decisions: self.decisions.wrapping_sub(before.decisions),
        }
    }

    /// The rates of what was counted within `length`.
    pub(super) fn rates(&self, length: Micros) -> RuleRates {
        let rate = |count: u64| per_second(count, length);
        RuleRates {
            hits: rate(self.hits),
            within: rate(self.within),
            near: rate(self.near),
            over: rate(self.over),
            shadow: rate(self.shadow),
            fallback: rate(self.fallback),
        }
    }
}

/// `count` within `length` as a number per second, with three digits after the point.
pub(super) fn per_second(count: u64, length: Micros) -> f64 {
    let seconds = length.0.max(1) as f64 / 1e6;
    (count as f64 / seconds * 1e3).round() / 1e3
}

impl<K: Copy + Eq + Hash> History<K> {
    /// A history without ticks, of a process that started at `now`.
    pub(super) fn new(now: Micros) -> History<K> {
        let (rings, length) = (HashMap::new(), TICK);
        History { rings, position: 0, recorded: 0, until: now, length }
    }

    /// The end of the last tick; `None` before the first one.
    pub(super) fn until(&self) -> Option<Micros> {
        (self.recorded > 0).then_some(self.until)
    }

    /// The length of the last tick.
    pub(super) fn length(&self) -> Micros {
        self.length
    }

    /// Ends a tick at `now`. `changed` are the rules that decided something during it, each once. After a
    /// pause of the process, the ticks of the pause are not recorded, and the tick has all decisions since
    /// the tick before.
    pub(super) fn tick(&mut self, now: Micros, changed: &[ChangedRule<K>]) {
        let began = self.until;
        self.length = now.saturating_sub(began);
        let ticks = (self.length.0 + TICK.0 / 2) / TICK.0;
        for _ in 1..ticks.min(TICKS as u64 + 1) {
            self.write_all(UNKNOWN);
            self.advance();
        }
        self.write_all(0);
        self.recorded += 1;
        let mut newcomers: Vec<&ChangedRule<K>> = Vec::new();
        for rule in changed {
            match self.rings.get_mut(&rule.key) {
                Some(ring) => ring.record(rule, self.position, self.recorded, began),
                None => newcomers.push(rule),
            }
        }
        self.place(newcomers, began);
        for ring in self.rings.values_mut() {
            if ring.last.is_none_or(|last| last.over == 0) {
                ring.denied_since = None;
            }
        }
        self.advance();
        self.until = now;
    }

    /// Sets the tick at the position in all rings.
    fn write_all(&mut self, number: u32) {
        let position = self.position;
        for ring in self.rings.values_mut() {
            ring.ticks.iter_mut().for_each(|ticks| ticks[position] = number);
            ring.last = Some(OutcomeTotals::default());
        }
    }

    fn advance(&mut self) {
        self.position = (self.position + 1) % TICKS;
    }

    /// Begins the histories of `newcomers`. At the maximum, they replace rules without decisions in this
    /// tick, and then rules with less than half of their decisions: smaller differences would end
    /// histories at every tick.
    fn place(&mut self, mut newcomers: Vec<&ChangedRule<K>>, began: Micros) {
        newcomers.sort_by_key(|rule| std::cmp::Reverse(rule.decisions));
        let free = RULES_MAX.saturating_sub(self.rings.len());
        let mut victims: Vec<(u64, u64, K)> = Vec::new();
        if newcomers.len() > free {
            let all = self.rings.iter();
            victims.extend(all.map(|(key, ring)| (ring.active, ring.decisions, *key)));
            victims.sort_by_key(|(active, decisions, _)| (*active, *decisions));
        }
        let mut victims = victims.into_iter();
        for rule in newcomers {
            if self.rings.len() >= RULES_MAX {
                let Some((active, decisions, key)) = victims.next() else { return };
                if active == self.recorded && decisions.saturating_mul(2) >= rule.decisions {
                    return;
                }
                self.rings.remove(&key);
            }
            let mut ring = Ring::new();
            ring.record(rule, self.position, self.recorded, began);
            if !rule.is_new {
                // Its totals at the start of the tick are not known.
                ring.set(self.position, [UNKNOWN; 4]);
                (ring.last, ring.denied_since) = (None, None);
            }
            self.rings.insert(rule.key, ring);
        }
    }

    /// Ends the histories of all rules but those in `kept`.
    pub(super) fn retain(&mut self, kept: &HashSet<K>) {
        self.rings.retain(|key, _| kept.contains(key));
    }

    /// The rules with a history.
    pub(super) fn keys(&self) -> impl Iterator<Item = K> {
        self.rings.keys().copied()
    }

    /// Whether the rule has a history.
    pub(super) fn has(&self, key: K) -> bool {
        self.rings.contains_key(&key)
    }

    /// The decisions of the last tick; `None` if they are not known.
    pub(super) fn last(&self, key: K) -> Option<OutcomeTotals> {
        self.rings.get(&key)?.last
    }

    /// The history of a rule.
    pub(super) fn read(&self, key: K) -> Option<RuleHistory> {
        let ring = self.rings.get(&key)?;
        let known = |number: u32| (number != UNKNOWN).then_some(number);
        let (newer, older) = (..self.position, self.position..);
        let ticks = ring.ticks.each_ref().map(|ticks| {
            let ordered = ticks[older.clone()].iter().chain(&ticks[newer]);
            ordered.map(|number| known(*number)).collect()
        });
        let rates = ring.last.map(|last| last.rates(self.length));
        Some(RuleHistory { rates, ticks, denied_since: ring.denied_since })
    }
}

impl Ring {
    fn new() -> Ring {
        Ring {
            ticks: [[UNKNOWN; TICKS]; 4],
            totals: OutcomeTotals::default(),
            last: None,
            decisions: 0,
            active: 0,
            denied_since: None,
        }
    }

    /// Records the tick `number`, which began at `began`.
    fn record<K>(&mut self, rule: &ChangedRule<K>, position: usize, number: u64, began: Micros) {
        let last = rule.totals.since(&self.totals);
        let small = |count: u64| u32::try_from(count).unwrap_or(UNKNOWN).min(UNKNOWN - 1);
        self.set(position, [last.within, last.near, last.over, last.fallback].map(small));
        if last.over > 0 {
            self.denied_since.get_or_insert(began);
        }
        self.totals = rule.totals;
        self.last = Some(last);
        (self.decisions, self.active) = (rule.decisions, number);
    }

    fn set(&mut self, position: usize, numbers: [u32; 4]) {
        for (ticks, number) in self.ticks.iter_mut().zip(numbers) {
            ticks[position] = number;
        }
    }
}
