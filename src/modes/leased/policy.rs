//! Token policies: which limits support tokens, how long tokens are valid, and which may be
//! returned. Pure. The proof is in the parent module.

use std::iter::zip;

use crate::algorithm;
use crate::limit::{Algorithm, Limit};
use crate::step::{GcraTier, Outcome, Params, State, Step};
use crate::time::Micros;

/// The longest validity of a bucket's token.
const LIFE_MAX: Micros = Micros::SECOND;

/// The shortest validity of a bucket's token. Buckets that would need a shorter one have no tokens.
const LIFE_MIN: Micros = Micros::from_millis(10);

/// A bucket's token is valid for at most `2^-LIFE_SHIFT` of the time in which the bucket fills.
const LIFE_SHIFT: u32 = 3;

/// The smallest burst with tokens. Their validity reduces the burst, and whole tokens must remain.
const BURST_MIN: u64 = 8;

/// The token policy of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenPolicy {
    limit: Limit,
    /// How long a token is valid; `None` for windows, whose tokens end with the window.
    life: Option<Micros>,
}

/// The unspent tokens of one refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenBatch {
    /// Unspent tokens.
    pub(super) tokens: u64,
    /// Drawn tokens.
    pub(super) drawn: u64,
    /// The instant of the refill.
    pub(super) at: Micros,
    /// The instant at which the tokens expire.
    pub(super) until: Micros,
}

impl TokenPolicy {
    /// The policy of `limit`; `None` if it does not support tokens.
    pub(super) fn for_limit(limit: &Limit) -> Option<TokenPolicy> {
        let life = match limit.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => None,
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let small =
                    |tier: &crate::limit::Tier| tier.requests == 0 || tier.burst < BURST_MIN;
                let life = life(&algorithm::plan(limit, 0, Micros::ZERO).params);
                if life < LIFE_MIN || limit.tiers.iter().any(small) {
                    return None;
                }
                Some(life)
            }
            Algorithm::SlidingWindowLog | Algorithm::Concurrency => return None,
        };
        if limit.count_denied {
            return None;
        }
        Some(TokenPolicy { limit: limit.clone(), life })
    }

    /// The limit.
    pub(super) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// A step on the counter: a refill, a peek, or a return.
    pub(super) fn plan(&self, hits: i64, now: Micros) -> Step {
        let mut step = algorithm::plan(&self.limit, hits, now);
        if let (Params::Gcra(tiers), Some(life)) = (&mut step.params, self.life) {
            for tier in tiers {
                tier.latest_allowed.micros -= life.0;
                tier.latest_denied = tier.latest_allowed;
            }
        }
        step
    }

    /// How long tokens drawn at `now` would be valid.
    pub(super) fn life_at(&self, now: Micros) -> Micros {
        self.life.unwrap_or_else(|| {
            let ends = match self.plan(0, now).params {
                Params::FixedWindow(tiers) => tiers.iter().map(|tier| tier.end).min(),
                Params::SlidingWindow(tiers) => {
                    tiers.iter().map(|tier| tier.start.saturating_add(tier.window)).min()
                }
                _ => None,
            };
            ends.unwrap_or_default().saturating_sub(now)
        })
    }

    /// The time before the end of tokens at which they should be replaced. 0 for windows, whose
    /// tokens cannot be replaced early.
    pub(super) fn lead(&self) -> Micros {
        Micros(self.life.unwrap_or_default().0 >> LIFE_SHIFT)
    }

    /// The tokens that `step` drew, if `outcome` allowed it.
    pub(super) fn batch(&self, step: &Step, outcome: &Outcome) -> TokenBatch {
        let seen = &outcome.tiers;
        // The window in which the store counted the tokens. It may be later than the planned one.
        let until = match &step.params {
            Params::FixedWindow(tiers) => {
                let window =
                    |tier: &crate::step::FixedWindowTier| tier.end.saturating_sub(tier.start);
                zip(tiers, seen).map(|(t, s)| Micros(s.b).saturating_add(window(t))).min()
            }
            Params::SlidingWindow(tiers) => {
                zip(tiers, seen).map(|(t, s)| Micros(s.c).saturating_add(t.window)).min()
            }
            _ => self.life.map(|life| step.now.saturating_add(life)),
        };
        let tokens = step.hits.unsigned_abs();
        TokenBatch { tokens, drawn: tokens, at: step.now, until: until.unwrap_or_default() }
    }

    /// Hits that fit at `now` into every tier of a counter in `state`.
    pub(super) fn room(&self, state: Option<&State>, now: Micros) -> u64 {
        let step = self.plan(0, now);
        let outcome = step.apply(&mut state.cloned());
        let rooms = self.limit.tiers.iter().enumerate().map(|(index, tier)| {
            // A decision reports one of several tiers, so each tier is decided separately.
            let limit = Limit { tiers: Box::new([*tier]), ..self.limit.clone() };
            let params = match &step.params {
                Params::FixedWindow(tiers) => {
                    Params::FixedWindow(tiers.get(index).copied().into_iter().collect())
                }
                Params::SlidingWindow(tiers) => {
                    Params::SlidingWindow(tiers.get(index).copied().into_iter().collect())
                }
                Params::Gcra(tiers) => {
                    Params::Gcra(tiers.get(index).copied().into_iter().collect())
                }
                other => other.clone(),
            };
            let tiers = outcome.tiers.get(index).copied().into_iter().collect();
            let outcome = Outcome { allowed: outcome.allowed, tiers };
            algorithm::report(&limit, &Step { params, ..step.clone() }, &outcome).remaining
        });
        rooms.min().unwrap_or_default()
    }

    /// The step that returns the tokens of `batch` at `now`, less those that may have drained.
    /// Without a time, all tokens of windows are returned and none of buckets.
    pub(super) fn return_step(&self, batch: &TokenBatch, now: Option<Micros>) -> Option<Step> {
        if batch.tokens == 0 {
            return None;
        }
        // An instant inside all windows that the tokens were drawn in.
        let inside = batch.until.saturating_sub(Micros(1));
        let step = |tokens: u64, at| self.plan(-i64::try_from(tokens).unwrap_or(i64::MAX), at);
        match self.plan(0, inside).params {
            Params::FixedWindow(tiers) => {
                let counts = tiers.iter().any(|tier| now.is_none_or(|now| tier.end > now));
                counts.then(|| step(batch.tokens, inside))
            }
            Params::SlidingWindow(tiers) => {
                let shows = |tier: &crate::step::SlidingWindowTier| {
                    let edge = tier.start.saturating_add(tier.window);
                    now.is_none_or(|now| edge.saturating_add(tier.window) > now)
                };
                tiers.iter().any(shows).then(|| step(batch.tokens, inside))
            }
            Params::Gcra(tiers) => {
                let (now, life) = (now?, self.life.unwrap_or_default());
                let past = now.saturating_sub(batch.at).saturating_add(life);
                let gone = tiers.iter().map(|tier| drained(tier, past)).max()?;
                let left = batch.tokens.saturating_sub(gone);
                (left > 0).then(|| step(left, now))
            }
            Params::Log(_) | Params::Slots(_) => None,
        }
    }
}

/// An eighth of the time in which the fastest tier fills, at most [`LIFE_MAX`].
fn life(params: &Params) -> Micros {
    let Params::Gcra(tiers) = params else { return Micros::ZERO };
    let fill = |tier: &GcraTier| {
        Micros(tier.latest_allowed.micros.saturating_sub(tier.now.0) >> LIFE_SHIFT)
    };
    tiers.iter().map(fill).min().unwrap_or_default().min(LIFE_MAX)
}

/// Tokens that may have drained in `time`, in whole or in part.
fn drained(tier: &GcraTier, time: Micros) -> u64 {
    // Rounding down the time that one token drains in is safe. Tokens that drain in less than a
    // microsecond are not returned.
    match tier.emission_interval.micros {
        0 => u64::MAX,
        one => time.0.div_ceil(one),
    }
}
