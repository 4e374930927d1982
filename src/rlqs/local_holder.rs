//! Local holders: the share of this process in a divided limit, for its callers of ShouldRateLimit.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::counter_quota::LocalShare;
use super::holder_budget::HolderBudget;
use super::tokens::{Taken, Tokens};
use crate::atomic_count::AtomicCount;
use crate::decision::Decision;
use crate::key::{CounterKey, RuleId};
use crate::limit::{Limit, Tier};
use crate::quota::Assignment;
use crate::time::Micros;

/// Shards, each with a lock.
const SHARDS: usize = 64;

/// How long a full bucket stays without hits.
const IDLE_TIMEOUT: Micros = Micros::from_secs(10);

/// The local holders of this process, by counter.
#[derive(Debug)]
pub(super) struct LocalHolders {
    shards: [LocalShard; SHARDS],
    number: AtomicCount,
    /// Holders, and those that were removed while their quotas are left.
    budget: HolderBudget,
}

#[derive(Debug, Default)]
struct LocalShard(Mutex<HashMap<CounterKey, LocalHolder>>);

#[derive(Debug)]
struct LocalHolder {
    rule: RuleId,
    /// `None` until the ledger has granted the first share.
    tokens: Option<Tokens>,
    /// Hits that the counter allowed before the first share. They are a debt of it.
    owed: u64,
    /// From this instant on it has no share.
    valid_until: Micros,
    /// Hits that were asked for since the last report, allowed and denied.
    hits: u64,
    last_hit: Micros,
    /// Whether its rule is not divided any longer. It has no share, and keeps what its bucket lacks.
    is_parked: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalCheck {
    /// The limit is not divided. The counter decides.
    NotDivided,
    /// The share of this process decided.
    Decided(Decision),
    /// This process has no valid share yet. The counter decides, and
    /// [`charge`](super::QuotaEngine::charge) gets the hits that it allows.
    ByCounter,
}

/// The result of a check of a local holder that may not exist.
pub(super) enum LocalState {
    /// There is no holder yet.
    Unknown,
    /// It decided, or cannot.
    Checked(LocalCheck),
}

/// What a local holder has done since its last report.
pub(super) struct LocalUse {
    pub(super) key: CounterKey,
    pub(super) rule: RuleId,
    pub(super) hits: u64,
    /// Whether the holder can be removed without a loss.
    pub(super) is_idle: bool,
    /// Whether it is [parked](LocalHolders::park).
    pub(super) is_parked: bool,
}

impl LocalHolders {
    /// At most `max` holders, with those that were removed and whose quotas are left.
    pub(super) fn new(max: usize) -> LocalHolders {
        let shards = std::array::from_fn(|_| LocalShard::default());
        LocalHolders { shards, number: AtomicCount::default(), budget: HolderBudget::new(max) }
    }

    /// The number of holders that are not parked.
    pub(super) fn len(&self) -> u64 {
        self.number.get()
    }

    /// Decides `hits` with the share of this process.
    pub(super) fn check(
        &self,
        limit: &Limit,
        key: &CounterKey,
        hits: i64,
        now: Micros,
    ) -> LocalState {
        let mut holders = self.shard(key).lock();
        match holders.get_mut(key) {
            Some(holder) if !holder.is_parked => {
                LocalState::Checked(holder.check(limit, hits, now))
            }
            _ => LocalState::Unknown,
        }
    }

    /// Adds a holder without a share. A parked one continues with its bucket. Returns whether there is room
    /// for it.
    pub(super) fn add(&self, key: &CounterKey, rule: RuleId, now: Micros) -> bool {
        let mut holders = self.shard(key).lock();
        if let Some(known) = holders.get_mut(key) {
            if std::mem::take(&mut known.is_parked) {
                self.number.add();
            }
            return true;
        }
        if !self.budget.reserve() {
            return false;
        }
        self.number.add();
        let holder = LocalHolder {
            rule,
            tokens: None,
            owed: 0,
            valid_until: Micros::ZERO,
            hits: 0,
            last_hit: now,
            is_parked: false,
        };
        holders.insert(*key, holder);
        true
    }

    /// Sets the share of a holder.
    pub(super) fn assign(&self, key: &CounterKey, share: LocalShare, now: Micros) {
        if let Some(holder) = self.shard(key).lock().get_mut(key) {
            match &mut holder.tokens {
                Some(tokens) => tokens.assign(share.assignment, now),
                None => {
                    // Others may have to give the share first. Its burst does not wait for that.
                    let mut tokens = Tokens::with(share.assignment, share.burst, now);
                    tokens.charge(holder.owed, holder.owed, now);
                    holder.owed = 0;
                    holder.tokens = Some(tokens);
                }
            }
            holder.valid_until = share.valid_until;
        }
    }

    /// Charges `hits` that the counter allowed to the holder. Negative hits are given back.
    pub(super) fn charge(&self, limit: &Limit, key: &CounterKey, hits: i64, now: Micros) {
        if let Some(holder) = self.shard(key).lock().get_mut(key) {
            holder.charge(limit, hits, now);
        }
    }

    /// Takes the hits of the holders in shard `number` modulo the number of shards.
    pub(super) fn take_uses(&self, number: usize, now: Micros) -> Vec<LocalUse> {
        let mut holders = self.shards[number % SHARDS].lock();
        let uses = holders.iter_mut().map(|(key, holder)| LocalUse {
            key: *key,
            rule: holder.rule,
            hits: std::mem::take(&mut holder.hits),
            is_idle: holder.is_idle(now),
            is_parked: holder.is_parked,
        });
        uses.collect()
    }

    /// Removes an idle holder, unless it had hits since its use was taken. It counts until `until`, because
    /// its quota stays in memory.
    pub(super) fn remove(&self, key: &CounterKey, now: Micros, until: Micros) -> bool {
        let mut holders = self.shard(key).lock();
        let is_idle = |holder: &mut LocalHolder| holder.hits == 0 && holder.is_idle(now);
        if !holders.get_mut(key).is_some_and(is_idle) {
            return false;
        }
        self.end_in(&mut holders, key, until);
        true
    }

    /// Removes a holder with all that it owes.
    pub(super) fn end(&self, key: &CounterKey, until: Micros) {
        self.end_in(&mut self.shard(key).lock(), key, until);
    }

    fn end_in(
        &self,
        holders: &mut HashMap<CounterKey, LocalHolder>,
        key: &CounterKey,
        until: Micros,
    ) {
        let Some(ended) = holders.remove(key) else { return };
        if holders.len() < holders.capacity() / 4 {
            let room = 2 * holders.len();
            holders.shrink_to(room);
        }
        if !ended.is_parked {
            self.number.subtract();
        }
        self.budget.release_at(until);
    }

    /// The rule of a holder is not divided any longer. It loses its share, and stays until its bucket is full:
    /// a rule that is divided again does not begin with another burst. Until then the bucket refills by
    /// `whole`, the whole limit.
    pub(super) fn park(&self, key: &CounterKey, whole: Assignment, now: Micros) {
        if let Some(holder) = self.shard(key).lock().get_mut(key) {
            if !std::mem::replace(&mut holder.is_parked, true) {
                self.number.subtract();
            }
            holder.valid_until = Micros::ZERO;
            let owed = std::mem::take(&mut holder.owed);
            let tokens = holder.tokens.get_or_insert_with(|| Tokens::full(whole, now));
            if !tokens.is_full(now) {
                tokens.assign(whole, now);
            }
            tokens.charge(owed, owed, now);
        }
    }

    /// Frees what does not count any longer at `now`.
    pub(super) fn expire(&self, now: Micros) {
        self.budget.expire(now);
    }

    fn shard(&self, key: &CounterKey) -> &LocalShard {
        &self.shards[key.0[1] as usize % SHARDS]
    }
}

impl LocalShard {
    fn lock(&self) -> MutexGuard<'_, HashMap<CounterKey, LocalHolder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalHolder {
    fn check(&mut self, limit: &Limit, hits: i64, now: Micros) -> LocalCheck {
        self.last_hit = now;
        self.hits = match u64::try_from(hits) {
            Ok(hits) => self.hits.saturating_add(hits),
            Err(_) => self.hits.saturating_sub(hits.unsigned_abs()),
        };
        // Without a share: the ledger has not answered yet, or not for a while.
        let Some(tokens) = self.tokens.as_mut().filter(|_| now < self.valid_until) else {
            return LocalCheck::ByCounter;
        };
        let (tier, requests) = tightest(limit);
        let taken = match u64::try_from(hits) {
            Ok(hits) => tokens.take(hits, at_once(limit), now),
            Err(_) => tokens.give_back(hits.unsigned_abs(), now),
        };
        let Taken { allowed, remaining, max, reset_after } = taken;
        let used = max.saturating_sub(remaining);
        let limit = requests;
        LocalCheck::Decided(Decision { allowed, tier, limit, remaining, used, reset_after })
    }

    /// Charges `hits` that the counter allowed. The debt is at most one limit.
    fn charge(&mut self, limit: &Limit, hits: i64, now: Micros) {
        let most = at_once(limit);
        match (&mut self.tokens, u64::try_from(hits)) {
            (Some(tokens), Ok(hits)) => tokens.charge(hits, most, now),
            (Some(tokens), Err(_)) => drop(tokens.give_back(hits.unsigned_abs(), now)),
            (None, _) => self.owed = self.owed.saturating_add_signed(hits).min(most),
        }
    }

    /// Whether the bucket is full and had no hits for a while, so that a new one is equal to it.
    fn is_idle(&mut self, now: Micros) -> bool {
        let is_quiet = self.is_parked || now.saturating_sub(self.last_hit) >= IDLE_TIMEOUT;
        is_quiet && self.tokens.as_mut().is_none_or(|tokens| tokens.is_full(now))
    }
}

/// The hits that the undivided limit would allow at once.
fn at_once(limit: &Limit) -> u64 {
    let sizes = limit.tiers.iter().map(|tier| match limit.algorithm.has_burst() {
        true => tier.burst,
        false => tier.requests,
    });
    sizes.min().unwrap_or(0)
}

/// The index of the tier with the lowest rate, the first among equals, and its requests.
fn tightest(limit: &Limit) -> (usize, u64) {
    let product = |a: &Tier, b: &Tier| u128::from(a.requests) * u128::from(b.window.0);
    let tiers = limit.tiers.iter().enumerate();
    let tightest = tiers.min_by(|(_, a), (_, b)| product(a, b).cmp(&product(b, a)));
    tightest.map_or((0, 0), |(index, tier)| (index, tier.requests))
}

#[cfg(test)]
mod tests;
