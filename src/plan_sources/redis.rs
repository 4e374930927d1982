//! Plans in Redis: followed by every instance, looked up per customer, and changed by operators.
//!
//! Two hashes have the plans and the plan of each customer. A stream has the changes. An instance knows
//! all plans, and the customers that its requests have named. It follows the stream, and asks for a
//! customer that it does not know. After a gap in the stream it asks for everything again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::{RunningSource, SourceStatus};
use crate::plans::{CustomerSource, Plans};
use crate::settings::PlansSettings;
use crate::store::{CommandBound, GuardedStore, RedisStore, RedisValue, SharedStore, StoreError};
use crate::time::{Clock, SystemClock};

mod book;
mod changes;
mod edits;
mod follower;
mod lookup_budget;

pub use edits::PlanEditError;

use book::BookSize;
use follower::Follower;
use lookup_budget::{AdmittedCustomers, LookupBudget};

/// The hash with the plans: the limits of each as JSON.
const PLANS_KEY: &str = "weir:{plans}:plans";

/// The hash with the plan of each customer.
const CUSTOMERS_KEY: &str = "weir:{plans}:customers";

/// The plans in Redis. Requests look customers up by it, and operators change plans by it.
pub struct RedisPlans {
    store: Arc<GuardedStore<RedisStore, SystemClock>>,
    plans: Arc<Plans>,
    status: Arc<SourceStatus>,
    metrics: FollowMetrics,
    lookups: LookupBudget,
    /// The size of the plans when they were last read.
    book: BookSize,
    /// Wakes the follower.
    written: Notify,
    /// Timeout of each command, except for those that a request waits for.
    timeout: Duration,
    clock: SystemClock,
}

/// What an instance reads of the plans in Redis, since the start.
#[derive(Debug, Default)]
pub struct FollowMetrics {
    changes: AtomicU64,
    resyncs: AtomicU64,
    lookups: AtomicU64,
    failed_lookups: AtomicU64,
    skipped_lookups: AtomicU64,
}

impl FollowMetrics {
    /// Entries of the stream that were applied.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// How often changes were missed, so that everything was asked for again.
    pub fn resyncs(&self) -> u64 {
        self.resyncs.load(Ordering::Relaxed)
    }

    /// Calls that looked customers up, answered and failed ones.
    pub fn lookups(&self) -> (u64, u64) {
        (self.lookups.load(Ordering::Relaxed), self.failed_lookups.load(Ordering::Relaxed))
    }

    /// Customers that were not looked up because of `plans.max_lookups`.
    pub fn skipped_lookups(&self) -> u64 {
        self.skipped_lookups.load(Ordering::Relaxed)
    }
}

/// Starts to follow the plans in Redis, and waits for them for at most `plans.timeout`.
///
/// # Errors
/// The thread cannot start.
pub fn start_redis(
    settings: &PlansSettings,
    plans: Arc<Plans>,
    store: Arc<GuardedStore<RedisStore, SystemClock>>,
    clock: SystemClock,
) -> io::Result<(RunningSource, Arc<RedisPlans>)> {
    let status = Arc::new(SourceStatus::new("redis"));
    let source = Arc::new(RedisPlans {
        store,
        plans,
        status: status.clone(),
        metrics: FollowMetrics::default(),
        lookups: LookupBudget::new(settings.max_lookups),
        book: BookSize::default(),
        written: Notify::new(),
        timeout: settings.timeout,
        clock,
    });
    let (follower, wait) = (Follower::new(source.clone(), settings), settings.timeout);
    let running = RunningSource::start(status, wait, move |first| follower.run(first))?;
    Ok((running, source))
}

impl RedisPlans {
    /// What this instance reads.
    pub fn metrics(&self) -> &FollowMetrics {
        &self.metrics
    }

    /// Reads the plans of `customers`, in one call, and gives them to the limiter. After a failure, and
    /// over `plans.max_lookups`, nothing changes: the last known plan decides, or the default.
    async fn look_up(&self, customers: &[&str]) {
        let is_in_memory = |customer: &str| self.plans.has_in_memory(customer);
        let admitted = self.lookups.admit(customers, is_in_memory, self.clock.now());
        let AdmittedCustomers { customers, skipped } = admitted;
        self.metrics.skipped_lookups.fetch_add(skipped as u64, Ordering::Relaxed);
        if customers.is_empty() {
            return;
        }
        // Before the call is sent: a change that the reply does not have may be applied before the reply.
        let changes = self.plans.changes();
        let mut words: Vec<&[u8]> = vec![&b"HMGET"[..], CUSTOMERS_KEY.as_bytes()];
        words.extend(customers.iter().map(|customer| customer.as_bytes()));
        // A request waits, so the breaker of the node and the timeout of the store apply.
        let timeout = self.store.timeout().unwrap_or(self.timeout);
        let reply = self.store.command(CUSTOMERS_KEY, &words, CommandBound::small(timeout)).await;
        let found = reply.as_ref().ok().and_then(RedisValue::list);
        let Some(found) = found.filter(|found| found.len() == customers.len()) else {
            self.metrics.failed_lookups.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = reply {
                self.lookups.failed(customers.len(), error);
            }
            return;
        };
        self.metrics.lookups.fetch_add(1, Ordering::Relaxed);
        for (customer, plan) in customers.iter().zip(found) {
            self.plans.assign_fetched(customer, plan_name(plan), changes);
        }
    }

    /// Sends a command with a small reply that no request waits for.
    async fn command(&self, key: &str, words: &[Vec<u8>]) -> Result<RedisValue, StoreError> {
        self.command_within(key, words, CommandBound::small(self.timeout)).await
    }

    async fn command_within(
        &self,
        key: &str,
        words: &[Vec<u8>],
        bound: CommandBound,
    ) -> Result<RedisValue, StoreError> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.store.store().command(key, &words, bound).await
    }
}

impl CustomerSource for RedisPlans {
    fn fetch<'a>(&'a self, customers: &'a [&'a str]) -> BoxFuture<'a, ()> {
        Box::pin(self.look_up(customers))
    }
}

/// The name of a plan in the hash of customers; `None` without one. Bytes that are no text name none.
fn plan_name(value: &RedisValue) -> Option<&str> {
    value.text().filter(|plan| !plan.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_names_a_plan() {
        let text = |text: &str| RedisValue::Bytes(text.as_bytes().to_vec());
        assert_eq!(plan_name(&text("pro")), Some("pro"));
        let none =
            [RedisValue::Nil, text(""), RedisValue::Bytes(vec![0xff]), RedisValue::Integer(1)];
        for value in none {
            assert_eq!(plan_name(&value), None, "{value:?}");
        }
    }
}
