//! Naive models of the six algorithms for tests, which compute the definitions in wide rational
//! numbers on the full history. They share no code with `step`.

use std::collections::BTreeMap;

use crate::limit::{Algorithm, Limit, Tier};

/// A counter with its full history.
pub(super) struct Model {
    count_denied: bool,
    tiers: Vec<TierModel>,
}

struct TierModel {
    tier: Tier,
    memory: Memory,
}

enum Memory {
    /// Hits per aligned window, by its number.
    Fixed(BTreeMap<u64, u128>),
    /// Hits per aligned window, by its number; the previous window is weighted.
    Sliding(BTreeMap<u64, u128>),
    /// One instant per unit.
    Units(Vec<u64>),
    /// Tokens times window, at an instant.
    Tokens(i128, u64),
    /// Level times window, at an instant.
    Level(i128, u64),
}

impl Model {
    pub(super) fn new(limit: &Limit) -> Model {
        let memory = |tier: &Tier| match limit.algorithm {
            Algorithm::FixedWindow => Memory::Fixed(BTreeMap::new()),
            Algorithm::SlidingWindow => Memory::Sliding(BTreeMap::new()),
            Algorithm::SlidingWindowLog | Algorithm::Concurrency => Memory::Units(Vec::new()),
            Algorithm::TokenBucket => {
                Memory::Tokens(i128::from(tier.burst) * i128::from(tier.window.0), 0)
            }
            Algorithm::LeakyBucket => Memory::Level(0, 0),
        };
        let model = |tier: &Tier| TierModel { tier: *tier, memory: memory(tier) };
        Model {
            count_denied: limit.count_denied && limit.algorithm != Algorithm::Concurrency,
            tiers: limit.tiers.iter().map(model).collect(),
        }
    }

    /// Takes or gives back hits, or peeks; `now` never decreases.
    pub(super) fn decide(&mut self, hits: i64, now: u64) -> bool {
        let units = hits.unsigned_abs();
        let tiers = &mut self.tiers;
        tiers.iter_mut().for_each(|tier| tier.pass_time(now));
        if hits < 0 {
            tiers.iter_mut().for_each(|tier| tier.give_back(units, now));
            return true;
        }
        let allowed = tiers.iter().all(|tier| tier.fits(units, now));
        if hits > 0 && (allowed || self.count_denied) {
            tiers.iter_mut().for_each(|tier| tier.take(units, now));
        }
        allowed
    }

    /// The most hits that fit into the tier.
    pub(super) fn remaining(&self, tier: usize, now: u64) -> u64 {
        let tier = &self.tiers[tier];
        let (mut some, mut many) = (0, tier.tier.requests.max(tier.tier.burst) + 1);
        while many - some > 1 {
            let middle = some + (many - some) / 2;
            if tier.fits(middle, now) { some = middle } else { many = middle }
        }
        some
    }
}

impl TierModel {
    fn pass_time(&mut self, now: u64) {
        let (rate, window) = (i128::from(self.tier.requests), i128::from(self.tier.window.0));
        match &mut self.memory {
            Memory::Tokens(tokens, at) => {
                let full = i128::from(self.tier.burst) * window;
                *tokens = full.min(*tokens + rate * i128::from(now - *at));
                *at = now;
            }
            Memory::Level(level, at) => {
                *level = 0.max(*level - rate * i128::from(now - *at));
                *at = now;
            }
            _ => {}
        }
    }

    fn fits(&self, hits: u64, now: u64) -> bool {
        let (limit, hits) = (i128::from(self.tier.requests), i128::from(hits));
        let window = i128::from(self.tier.window.0);
        let number = now / self.tier.window.0;
        let count = |counts: &BTreeMap<u64, u128>, number: u64| {
            counts.get(&number).map_or(0, |&count| count as i128)
        };
        match &self.memory {
            Memory::Fixed(counts) => count(counts, number) + hits <= limit,
            Memory::Sliding(counts) => {
                let before = number.checked_sub(1).map_or(0, |before| count(counts, before));
                let rest = window - i128::from(now % self.tier.window.0);
                before * rest + (count(counts, number) + hits) * window <= limit * window
            }
            Memory::Units(units) => {
                let live = |&&at: &&u64| i128::from(at) > i128::from(now) - window;
                units.iter().filter(live).count() as i128 + hits <= limit
            }
            // Without a rate nothing ever refills, so nothing passes.
            Memory::Tokens(..) | Memory::Level(..) if limit == 0 => hits == 0,
            Memory::Tokens(tokens, _) => *tokens >= hits * window,
            Memory::Level(level, _) => {
                level + hits * window <= i128::from(self.tier.burst) * window
            }
        }
    }

    fn take(&mut self, hits: u64, now: u64) {
        let window = i128::from(self.tier.window.0);
        let full = i128::from(self.tier.burst) * window;
        let cost = i128::from(hits) * window;
        match &mut self.memory {
            Memory::Fixed(counts) | Memory::Sliding(counts) => {
                *counts.entry(now / self.tier.window.0).or_default() += u128::from(hits);
            }
            Memory::Units(units) => units.extend((0..hits).map(|_| now)),
            // The debt of denied hits is at most one full bucket.
            Memory::Tokens(tokens, _) => *tokens = (*tokens - cost).max(-full),
            Memory::Level(level, _) => *level = (*level + cost).min(2 * full),
        }
    }

    fn give_back(&mut self, hits: u64, now: u64) {
        let window = i128::from(self.tier.window.0);
        let number = now / self.tier.window.0;
        match &mut self.memory {
            Memory::Fixed(counts) => {
                let count = counts.entry(number).or_default();
                *count = count.saturating_sub(u128::from(hits));
            }
            Memory::Sliding(counts) => {
                let mut left = u128::from(hits);
                for number in [Some(number), number.checked_sub(1)].into_iter().flatten() {
                    let count = counts.entry(number).or_default();
                    let back = left.min(*count);
                    *count -= back;
                    left -= back;
                }
            }
            Memory::Units(units) => {
                for _ in 0..hits {
                    let live =
                        units.last().is_some_and(|&at| i128::from(at) > i128::from(now) - window);
                    if live {
                        units.pop();
                    }
                }
            }
            Memory::Tokens(tokens, _) => {
                let full = i128::from(self.tier.burst) * window;
                *tokens = full.min(*tokens + i128::from(hits) * window);
            }
            Memory::Level(level, _) => *level = 0.max(*level - i128::from(hits) * window),
        }
    }
}
