//! One shard of the table of credit pools.

use std::collections::HashMap;
use std::time::Duration;

use super::POOLS_MAX;
use super::credit_pool::CreditPool;
use super::hot_keys::HotKeys;
use super::leased_limit::LeasedLimit;
use crate::key::CounterKey;
use crate::modes::CounterCheck;
use crate::modes::job::JobSignal;

/// The credit pools of some counters, and the counters that are about to get one.
pub(super) struct PoolShard {
    pub(super) pools: HashMap<CounterKey, CreditPool>,
    hot_keys: HotKeys,
}

impl PoolShard {
    /// A shard without pools.
    pub(super) fn new() -> PoolShard {
        PoolShard { pools: HashMap::new(), hot_keys: HotKeys::new() }
    }

    /// The counter's pool. A pool is created at the second request within two seconds, if the shard
    /// has room and the limit supports credits. The store ends calls within `timeout`. The background job hears of
    /// a new pool by `signal`.
    pub(super) fn pool(
        &mut self,
        check: &CounterCheck<'_>,
        timeout: Option<Duration>,
        signal: &JobSignal,
    ) -> Option<&mut CreditPool> {
        if !self.pools.contains_key(check.key) {
            let full = self.pools.len() >= POOLS_MAX;
            if check.hits <= 0 || !self.hot_keys.record(check.key, check.local_now) || full {
                return None;
            }
            let (limit, now) = (LeasedLimit::of(check.limit)?, check.store_now.ok()?);
            let timeout = timeout.unwrap_or_default();
            self.pools.insert(*check.key, CreditPool::new(limit, now, check.local_now, timeout));
            signal.work();
        }
        self.pools.get_mut(check.key)
    }
}
