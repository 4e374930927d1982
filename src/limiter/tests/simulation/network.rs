//! The simulated network between instances and Redis: latency, reordering, loss of requests and
//! of replies, refusals and outages.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::redis::Redis;
use super::rng::Rng;
use crate::key::Key;
use crate::step::{Outcome, Step};
use crate::store::guarded;
use crate::store::{Clustered, NodeId, Store, StoreError};
use crate::time::{Clock, Micros};

/// What a network does to calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    /// The shortest latency each way, in milliseconds.
    pub(super) latency: u64,
    /// The most milliseconds that are added to a latency at random, so that calls overtake others.
    pub(super) jitter: u64,
    /// Calls of 100 that are lost, with their connection or without.
    pub(super) loses: u64,
}

/// The fate of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Applied,
    RequestLost,
    ReplyLost,
    /// The connection ends, before or after the step is applied.
    Cut {
        applied: bool,
    },
    Refused,
}

/// The network, and Redis behind it.
pub(super) struct Network {
    begin: Instant,
    /// The clock of Redis at the beginning.
    epoch: Micros,
    inner: Mutex<Inner>,
    pub(super) redis: Mutex<Redis>,
    /// Calls without a certain outcome.
    pub(super) unknown: Mutex<Vec<Unknown>>,
}

struct Inner {
    rng: Rng,
    conditions: Conditions,
    /// Whether no instance has a connection.
    down: bool,
}

/// A call whose step was possibly applied, because of the network. A call that an ending instance
/// abandons before its timeout is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unknown {
    pub(super) key: Key,
    pub(super) hits: i64,
    /// When it was sent, by the clock of Redis.
    pub(super) at: Micros,
}

/// Locks `mutex`. No panic leaves its content half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    pub(super) fn new(seed: u64, epoch: Micros, conditions: Conditions) -> Arc<Network> {
        let inner = Inner { rng: Rng::new(seed), conditions, down: false };
        Arc::new(Network {
            begin: Instant::now(),
            epoch,
            inner: Mutex::new(inner),
            redis: Mutex::default(),
            unknown: Mutex::default(),
        })
    }

    /// The clock of Redis.
    pub(super) fn now(&self) -> Micros {
        let elapsed = u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.epoch.saturating_add(Micros(elapsed))
    }

    /// The instant of the virtual clock that is `millis` after the beginning.
    pub(super) fn at(&self, millis: u64) -> Instant {
        self.begin + Duration::from_millis(millis)
    }

    pub(super) fn set_conditions(&self, conditions: Conditions) {
        lock(&self.inner).conditions = conditions;
    }

    pub(super) fn set_down(&self, down: bool) {
        lock(&self.inner).down = down;
    }

    /// The latencies each way and the fate of the next call.
    fn plan(&self) -> (u64, u64, Fate) {
        let mut inner = lock(&self.inner);
        let Conditions { latency, jitter, loses } = inner.conditions;
        let fate = if loses > 0 && inner.rng.chance(loses) {
            inner.rng.pick(&[
                Fate::RequestLost,
                Fate::ReplyLost,
                Fate::Cut { applied: false },
                Fate::Cut { applied: true },
                Fate::Refused,
            ])
        } else {
            Fate::Applied
        };
        let there = latency + inner.rng.below(jitter + 1);
        let back = latency + inner.rng.below(jitter + 1);
        (there, back, fate)
    }

    /// Sends a call. It travels on, even if its caller stops waiting.
    fn send<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&mut Redis, Micros) -> T + Send + 'static,
    ) -> (Fate, oneshot::Receiver<Result<T, StoreError>>) {
        let (sender, receiver) = oneshot::channel();
        let (there, back, fate) = self.plan();
        let network = self.clone();
        tokio::spawn(async move {
            travel(there).await;
            let applies =
                !matches!(fate, Fate::RequestLost | Fate::Refused | Fate::Cut { applied: false });
            let answer = applies.then(|| call(&mut lock(&network.redis), network.now()));
            travel(back).await;
            let result = match (fate, answer) {
                (Fate::Applied, Some(answer)) => Ok(answer),
                (Fate::Refused, _) => Err(StoreError::ErrorReply),
                (Fate::Cut { .. }, _) => Err(StoreError::ConnectionLost),
                _ => return,
            };
            let _ = sender.send(result);
        });
        (fate, receiver)
    }
}

async fn travel(millis: u64) {
    if millis > 0 {
        sleep(Duration::from_millis(millis)).await;
    }
}

/// The clock of one instance.
#[derive(Clone)]
pub(super) struct LocalClock {
    network: Arc<Network>,
    /// The instance's clock minus that of Redis, in microseconds.
    offset: i64,
}

impl LocalClock {
    pub(super) fn new(network: &Arc<Network>, offset: i64) -> LocalClock {
        LocalClock { network: network.clone(), offset }
    }
}

impl Clock for LocalClock {
    fn now(&self) -> Micros {
        Micros(self.network.now().0.saturating_add_signed(self.offset))
    }
}

/// One instance's connection: the store beneath its breaker and timeouts.
pub(super) struct Link {
    network: Arc<Network>,
    instance: usize,
    offset: i64,
    /// Whether the instance is ending.
    ends: Arc<AtomicBool>,
    /// The store's timeout.
    timeout: Micros,
}

impl Link {
    pub(super) fn new(
        network: &Arc<Network>,
        instance: usize,
        offset: i64,
        ends: Arc<AtomicBool>,
        timeout: Micros,
    ) -> Link {
        Link { network: network.clone(), instance, offset, ends, timeout }
    }

    fn is_down(&self) -> bool {
        lock(&self.network.inner).down
    }

    fn unknown(&self, key: &Key, hits: i64, at: Micros) {
        let unknown = Unknown { key: *key, hits, at };
        lock(&self.network.unknown).push(unknown);
    }
}

/// Records a call as unknown when its caller stops waiting for it.
struct Waiting<'a> {
    link: &'a Link,
    key: &'a Key,
    hits: i64,
    at: Micros,
    ended: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = self.link.network.now().saturating_sub(self.at);
        let abandoned = self.link.ends.load(Ordering::Relaxed) && waited < self.link.timeout;
        if !self.ended && !abandoned {
            self.link.unknown(self.key, self.hits, self.at);
        }
    }
}

impl Store for Link {
    fn now(&self, _: &Key, local: Micros) -> Result<Micros, StoreError> {
        if self.is_down() {
            return Err(StoreError::Unreachable);
        }
        Ok(Micros(local.0.saturating_add_signed(-self.offset)))
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        _: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        if self.is_down() {
            return Err(StoreError::Unreachable);
        }
        let (at, hits) = (self.network.now(), step.hits);
        let mut waiting = Waiting { link: self, key, hits, at, ended: false };
        let (key, step, instance) = (*key, step.clone(), self.instance);
        let (_, answer) =
            self.network.send(move |redis, now| redis.apply(now, instance, key, &step));
        let Ok(result) = answer.await else { return pending().await };
        waiting.ended = true;
        // A return that is refused is not sent again.
        if matches!(result, Err(error) if error.may_have_run() || hits < 0) {
            self.unknown(&key, hits, at);
        }
        result
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        let (at, hits) = (self.network.now(), step.hits);
        if self.is_down() {
            return self.unknown(key, hits, at);
        }
        let (key, instance) = (*key, self.instance);
        let (fate, _) = self.network.send(move |redis, now| redis.apply(now, instance, key, &step));
        if fate != Fate::Applied {
            self.unknown(&key, hits, at);
        }
    }

    async fn delete(&self, key: &Key) -> Result<bool, StoreError> {
        if self.is_down() {
            return Err(StoreError::Unreachable);
        }
        let (key, instance) = (*key, self.instance);
        let (_, answer) = self.network.send(move |redis, now| redis.delete(now, instance, key));
        let Ok(result) = answer.await else { return pending().await };
        result
    }
}

impl Clustered for Link {
    fn node(&self, _: &Key) -> NodeId {
        NodeId(0)
    }

    fn node_label(&self, _: NodeId) -> String {
        "simulated".to_owned()
    }
}

/// The store of an instance, as in production.
pub(super) type InstanceStore = guarded::GuardedStore<Link, LocalClock>;
