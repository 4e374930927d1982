//! TokenPolicy: what a limit lets be drawn ahead, for how long it is good, and what may be given back.
//!
//! Pure. The proofs are in the module above.

use std::iter::zip;

use crate::algorithm;
use crate::limit::{Algorithm, Limit};
use crate::step::{GcraTier, Outcome, Params, State, Step};
use crate::time::Micros;

/// The longest life of a token from a bucket.
const LIFE_MAX: Micros = Micros::SECOND;

/// The shortest that is worth a lease.
const LIFE_MIN: Micros = Micros::from_millis(10);

/// A token from a bucket lives at most `2^-LIFE_SHIFT` of the time that the bucket takes to fill.
const LIFE_SHIFT: u32 = 3;

/// The smallest bucket that is leased: what the life of tokens costs it must leave whole tokens.
const BURST_MIN: u64 = 8;

/// The policy of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenPolicy {
    limit: Limit,
    /// How long a token lives; windows have edges instead.
    life: Option<Micros>,
}

/// The tokens of one draw that are not spent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// How many.
    pub(super) tokens: u64,
    /// How many there were.
    pub(super) drawn: u64,
    /// When they were drawn.
    pub(super) at: Micros,
    /// From when on they are worth nothing.
    pub(super) until: Micros,
}

impl TokenPolicy {
    /// The policy of `limit`; none if nothing can be drawn ahead from it.
    pub(super) fn of(limit: &Limit) -> Option<TokenPolicy> {
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

    /// The limit that they are the policy of.
    pub(super) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// A step on the counter: a draw, a look, or a way back.
    pub(super) fn plan(&self, hits: i64, now: Micros) -> Step {
        let mut step = algorithm::plan(&self.limit, hits, now);
        if let (Params::Gcra(tiers), Some(life)) = (&mut step.params, self.life) {
            for tier in tiers {
                tier.horizon.micros -= life.0;
                tier.most = tier.horizon;
            }
        }
        step
    }

    /// How long tokens drawn at `now` could be good.
    pub(super) fn span(&self, now: Micros) -> Micros {
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

    /// How long before tokens end they should be replaced; those of a window cannot be.
    pub(super) fn lead(&self) -> Micros {
        Micros(self.life.unwrap_or_default().0 >> LIFE_SHIFT)
    }

    /// What `step`, which was allowed with `outcome`, drew.
    pub(super) fn batch(&self, step: &Step, outcome: &Outcome) -> Batch {
        let seen = &outcome.tiers;
        // The window that the store counted them in, which may be a later one than was meant.
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
        Batch { tokens, drawn: tokens, at: step.now, until: until.unwrap_or_default() }
    }

    /// Hits that still pass at `now` in every tier of a counter in `state`.
    pub(super) fn room(&self, state: Option<&State>, now: Micros) -> u64 {
        let step = self.plan(0, now);
        let outcome = step.apply(&mut state.cloned());
        let rooms = self.limit.tiers.iter().enumerate().map(|(index, tier)| {
            // Of several tiers only one is reported, so each is asked for itself.
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

    /// What of `batch` can be given back at `now`, as a step. Where the time cannot be told, windows
    /// take everything and buckets nothing.
    pub(super) fn give_back(&self, batch: &Batch, now: Option<Micros>) -> Option<Step> {
        if batch.tokens == 0 {
            return None;
        }
        // An instant inside all windows that they were drawn in.
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

/// An eighth of what the fastest tier takes to fill, but not too long.
fn life(params: &Params) -> Micros {
    let Params::Gcra(tiers) = params else { return Micros::ZERO };
    let fill =
        |tier: &GcraTier| Micros(tier.horizon.micros.saturating_sub(tier.now.0) >> LIFE_SHIFT);
    tiers.iter().map(fill).min().unwrap_or_default().min(LIFE_MAX)
}

/// Tokens of which anything may have drained in `time`.
fn drained(tier: &GcraTier, time: Micros) -> u64 {
    // A shorter token is a safe one; one of no whole microsecond is not worth the trouble.
    match tier.one.micros {
        0 => u64::MAX,
        one => time.0.div_ceil(one),
    }
}
