//! Local holders: the share of this process in a divided limit, for its callers of ShouldRateLimit.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::counter_quota::LocalShare;
use super::holder_budget::HolderBudget;
use super::tokens::{Taken, Tokens};
use crate::atomic_count::AtomicCount;
use crate::decision::Decision;
use crate::key::{CounterKey, RuleId};
use crate::limit::{Limit, Tier};
use crate::store_error::StoreError;
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
struct LocalShard {
    holders: Mutex<HashMap<CounterKey, LocalHolder>>,
    /// A holder of the shard got its first share, or failed to get one.
    joined: Notify,
}

#[derive(Debug)]
struct LocalHolder {
    rule: RuleId,
    /// `None` until the ledger has granted the first share.
    tokens: Option<Tokens>,
    /// From this instant on it has no share.
    valid_until: Micros,
    /// Hits that were asked for since the last report, allowed and denied.
    hits: u64,
    last_hit: Micros,
    /// Why the ledger did not answer the last time.
    error: Option<StoreError>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalCheck {
    /// The limit is not divided, or this process has no share although the store works. The counter
    /// decides.
    NotDivided,
    /// The share of this process decided.
    Decided(Decision),
    /// The ledger in Redis has not answered about the share yet.
    Joining,
    /// There is no share, because the store failed. The rule's `on_error` decides.
    Failed(StoreError),
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
}

impl LocalHolders {
    /// At most `max` holders, with those that were removed and whose quotas are left.
    pub(super) fn new(max: usize) -> LocalHolders {
        let shards = std::array::from_fn(|_| LocalShard::default());
        LocalHolders { shards, number: AtomicCount::default(), budget: HolderBudget::new(max) }
    }

    /// The number of holders.
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
        let Some(holder) = holders.get_mut(key) else { return LocalState::Unknown };
        LocalState::Checked(holder.check(limit, hits, now))
    }

    /// Adds a holder without a share. Returns whether there is room for it.
    pub(super) fn add(&self, key: &CounterKey, rule: RuleId, now: Micros) -> bool {
        let mut holders = self.shard(key).lock();
        if holders.contains_key(key) {
            return true;
        }
        if !self.budget.reserve() {
            return false;
        }
        self.number.add();
        let holder = LocalHolder {
            rule,
            tokens: None,
            valid_until: Micros::ZERO,
            hits: 0,
            last_hit: now,
            error: None,
        };
        holders.insert(*key, holder);
        true
    }

    /// Sets the share of a holder.
    pub(super) fn assign(&self, key: &CounterKey, share: LocalShare, now: Micros) {
        let shard = self.shard(key);
        if let Some(holder) = shard.lock().get_mut(key) {
            match &mut holder.tokens {
                Some(tokens) => tokens.assign(share.assignment, now),
                None => holder.tokens = Some(Tokens::full(share.assignment, now)),
            }
            holder.valid_until = share.valid_until;
            holder.error = None;
        }
        shard.joined.notify_waiters();
    }

    /// The ledger did not answer.
    pub(super) fn fail(&self, key: &CounterKey, error: StoreError) {
        let shard = self.shard(key);
        if let Some(holder) = shard.lock().get_mut(key) {
            holder.error = Some(error);
        }
        shard.joined.notify_waiters();
    }

    /// Waits until the holder of `key` has a share, failed to get one, or is gone. Cancel-safe.
    pub(super) async fn joined(&self, key: &CounterKey) -> Result<(), StoreError> {
        let shard = self.shard(key);
        loop {
            let mut joined = pin!(shard.joined.notified());
            // Before the state is read, so that a share that arrives after it wakes this call.
            joined.as_mut().enable();
            match shard.lock().get(key) {
                Some(LocalHolder { tokens: None, error: Some(error), .. }) => return Err(*error),
                Some(LocalHolder { tokens: None, .. }) => {}
                _ => return Ok(()),
            }
            joined.await;
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
        });
        uses.collect()
    }

    /// Removes a holder, unless it had hits since its use was taken and `only_idle`. It counts until
    /// `until`, because its quota stays in memory.
    pub(super) fn remove(
        &self,
        key: &CounterKey,
        only_idle: bool,
        now: Micros,
        until: Micros,
    ) -> bool {
        let mut holders = self.shard(key).lock();
        let Some(holder) = holders.get_mut(key) else { return false };
        if only_idle && (holder.hits > 0 || !holder.is_idle(now)) {
            return false;
        }
        holders.remove(key);
        if holders.len() < holders.capacity() / 4 {
            let room = 2 * holders.len();
            holders.shrink_to(room);
        }
        drop(holders);
        self.number.subtract();
        self.budget.release_at(until);
        true
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
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalHolder {
    fn check(&mut self, limit: &Limit, hits: i64, now: Micros) -> LocalCheck {
        let Some(tokens) = &mut self.tokens else {
            return self.error.map_or(LocalCheck::Joining, LocalCheck::Failed);
        };
        if now >= self.valid_until {
            // Without an error, the renewal is late: the store works, so its counter decides meanwhile.
            return self.error.map_or(LocalCheck::NotDivided, LocalCheck::Failed);
        }
        self.last_hit = now;
        let (tier, requests) = tightest(limit);
        let taken = match u64::try_from(hits) {
            Ok(hits) => {
                self.hits = self.hits.saturating_add(hits);
                // What the undivided limit would allow at once.
                let sizes = limit.tiers.iter().map(|tier| match limit.algorithm.has_burst() {
                    true => tier.burst,
                    false => tier.requests,
                });
                tokens.take(hits, sizes.min().unwrap_or(0), now)
            }
            Err(_) => {
                self.hits = self.hits.saturating_sub(hits.unsigned_abs());
                tokens.give_back(hits.unsigned_abs(), now)
            }
        };
        let Taken { allowed, remaining, max, reset_after } = taken;
        let used = max.saturating_sub(remaining);
        let limit = requests;
        LocalCheck::Decided(Decision { allowed, tier, limit, remaining, used, reset_after })
    }

    /// Whether the bucket is full and had no hits for a while, so that a new one is equal to it.
    fn is_idle(&mut self, now: Micros) -> bool {
        let is_quiet = now.saturating_sub(self.last_hit) >= IDLE_TIMEOUT;
        is_quiet && self.tokens.as_mut().is_none_or(|tokens| tokens.is_full(now))
    }
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
