//! Counters in Redis: one key, one atomic call of a script, on the node that owns the key.
//!
//! fred keeps the connections, one client per node and core. Which node owns a key is decided here
//! and not in fred's cluster client: that one serves all nodes from one task, and stops them all
//! while it reconnects to one that died.
//!
//! **Invariant:** a call that may have run is never sent again. What is sent again was refused by
//! the node that was asked, in words that say so.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use fred::error::Error;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::{Clustered, NodeId, Store, StoreError, with_timeout};
use crate::key::Key;
use crate::settings::RedisSettings;
use crate::step::{Outcome, Step};
use crate::time::{Clock, Micros, SystemClock};

pub mod batch;
mod batcher;
mod clock_offset;
mod config;
mod connection;
mod discovery;
mod error;
mod forget;
mod name;
mod node;
pub mod script;
mod stats;
mod topology;

pub use self::config::RedisConfigError;
use self::config::fred_config;
pub use stats::NodeStats;

use batch::ScriptCall;
use batcher::BatchError;
use connection::Connection;
use error::{Redirect, RedisError};
use name::{CounterName, slot};
use node::RedisNode;
use script::{EncodedStep, Script};
use stats::AtomicStats;
use topology::Topology;

/// How often one call may be sent: a slot may move while its owner is being looked for, the new one
/// may lack the script, or have to be connected to first. The deadline is often sooner.
const SENDS_MAX: usize = 16;

/// Pause before asking a node again that is between two answers, or that named one which is not
/// known yet.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Nodes that can be named before the keeper gets to know them.
const NAMED_MAX: usize = 64;

/// Counters in Redis. Dropping it closes its connections.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<Router>,
    /// Ends the keeper when dropped.
    _discovery: oneshot::Sender<()>,
}

/// What calls and the keeper both know.
#[derive(Debug)]
struct Router {
    clock: SystemClock,
    topology: ArcSwap<Topology>,
    /// Wakes the keeper: the topology has changed, or seems to.
    ask: Notify,
    /// Connections per node and core.
    connections: usize,
    /// Addresses that nodes named and the keeper does not know yet.
    named: Mutex<Vec<(String, u16)>>,
    /// The most steps per call.
    steps_max: usize,
    /// The node_records, by number.
    node_records: Mutex<Vec<NodeRecord>>,
    /// When the words of a refusal were last logged, by our clock.
    refusal_logged_at: AtomicU64,
}

/// What stays of a node that goes, for when it comes back.
#[derive(Debug)]
struct NodeRecord {
    label: String,
    stats: Arc<AtomicStats>,
}

impl RedisStore {
    /// Begins to connect, and returns at once: until there is a connection, and whenever there is
    /// none, every call fails. Never gives up. The connections of a node are spread over `cores`.
    /// `clock` is the one that [`Store::now`] is asked with.
    ///
    /// # Errors
    /// Settings that no server could ever be reached with, or a thread that cannot be had.
    pub fn start(
        settings: &RedisSettings,
        cores: usize,
        clock: SystemClock,
    ) -> Result<RedisStore, RedisConfigError> {
        let fred_config = fred_config(settings)?;
        let shared = Arc::new(Router {
            clock,
            topology: ArcSwap::from_pointee(Topology::unknown()),
            ask: Notify::new(),
            connections: settings.pool_size.div_ceil(cores.max(1)),
            steps_max: settings.batch.max(1),
            named: Mutex::default(),
            node_records: Mutex::default(),
            refusal_logged_at: AtomicU64::new(0),
        });
        let (alive, dropped) = oneshot::channel::<()>();
        let kept = shared.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("weir-redis".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = discovery::run(kept.clone(), fred_config) => {}
                    _ = dropped => {}
                }
                for node in kept.topology.load().nodes() {
                    node.leave();
                }
            });
        })?;
        Ok(RedisStore { shared, _discovery: alive })
    }

    /// Whether any counter can be counted at present, as far as is known.
    pub fn is_reachable(&self) -> bool {
        let topology = self.shared.topology.load();
        topology.nodes().iter().any(|node| node.is_up())
    }

    /// What Redis calls the counter `key`.
    pub fn name_of(&self, key: &Key) -> String {
        String::from_utf8_lossy(CounterName::of(key).as_ref()).into_owned()
    }

    /// The nodes that own counters, with their names.
    pub fn nodes(&self) -> Vec<(NodeId, String)> {
        let topology = self.shared.topology.load();
        topology.nodes().iter().map(|node| (node.part(), node.label().to_owned())).collect()
    }

    /// What was sent to `part`.
    pub fn node_stats(&self, part: NodeId) -> NodeStats {
        let node_records = self.shared.node_records.lock().unwrap_or_else(PoisonError::into_inner);
        node_records.get(part.0 as usize).map(|part| part.stats.stats()).unwrap_or_default()
    }
}

impl From<io::Error> for RedisConfigError {
    fn from(error: io::Error) -> RedisConfigError {
        RedisConfigError::new(format!("the thread that minds Redis did not start: {error}"))
    }
}

impl Clustered for RedisStore {
    fn node(&self, key: &Key) -> NodeId {
        let topology = self.shared.topology.load();
        topology.owner(slot(key)).map_or(NodeId(0), |node| node.part())
    }

    fn node_label(&self, node: NodeId) -> String {
        let records = self.shared.node_records.lock().unwrap_or_else(PoisonError::into_inner);
        records.get(node.0 as usize).map(|record| record.label.clone()).unwrap_or_default()
    }
}

impl Store for RedisStore {
    fn now(&self, key: &Key, local: Micros) -> Result<Micros, StoreError> {
        let topology = self.shared.topology.load();
        let node = topology.owner(slot(key)).ok_or(StoreError::Unreachable)?;
        node.now(local).ok_or(StoreError::Unreachable)
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    async fn apply_within(
        &self,
        key: &Key,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let call = self.shared.apply(key, step);
        match timeout {
            None => call.await,
            Some(timeout) => with_timeout(timeout, call).await,
        }
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        let (shared, key) = (self.shared.clone(), *key);
        // Outside a runtime the process is ending, and what is not given back expires.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut telling = Box::pin(async move { shared.apply(&key, &step).await });
        // The first look puts it into the queue, before whatever its caller asks next.
        if telling.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(telling);
        }
    }

    async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        self.shared.forget(key).await
    }
}

/// Where a step goes next.
struct Route {
    node: Arc<RedisNode>,
    way: SendMode,
}

/// How it goes there.
#[derive(Clone, Copy)]
enum SendMode {
    /// In a call with whatever else goes there.
    Batched,
    /// In a call of its own.
    Single,
    /// The same, and the slot is on its way there: say so.
    Asking,
}

impl Router {
    async fn apply(&self, key: &Key, step: &Step) -> Result<Outcome, StoreError> {
        let (name, message) = (CounterName::of(key), EncodedStep::of(step));
        let mut route = Route { node: self.owner(key)?, way: SendMode::Batched };
        for _ in 0..SENDS_MAX {
            let connection = route.node.connection(key).ok_or(StoreError::Unreachable)?;
            connection.ready().await?;
            let alone = || ScriptCall::alone(name, &message, ());
            let answer = match route.way {
                SendMode::Batched => {
                    batcher::ask(&connection, self.group(key), name, message.clone()).await?
                }
                SendMode::Single => batcher::own(connection.call(&mut alone()).await),
                SendMode::Asking => batcher::own(connection.call_asking(&mut alone()).await),
            };
            match answer {
                Ok(bytes) => {
                    return script::decode(step, &bytes).map_err(|_| StoreError::Reply);
                }
                Err(BatchError::Reply) => return Err(StoreError::Reply),
                Err(BatchError::RetryAlone) => route.way = SendMode::Single,
                Err(BatchError::Error(error)) => {
                    route = self.next(route, key, &error, &connection, message.script).await?;
                }
            }
        }
        Err(StoreError::Refused)
    }

    fn owner(&self, key: &Key) -> Result<Arc<RedisNode>, StoreError> {
        self.topology.load().owner(slot(key)).cloned().ok_or(StoreError::Unreachable)
    }

    /// Which counters can share a call with this one: all, but in a cluster those of its slot.
    fn group(&self, key: &Key) -> u16 {
        if self.topology.load().is_cluster() { slot(key) } else { 0 }
    }

    /// Where to send a step again that certainly did not run.
    async fn next(
        &self,
        route: Route,
        key: &Key,
        error: &Error,
        connection: &Connection,
        script: Script,
    ) -> Result<Route, StoreError> {
        match RedisError::of(error) {
            RedisError::NoScript => match connection.load(script.source()).await {
                Ok(()) => Ok(route),
                Err(error) => Err(self.log_refusal(&route.node, &error)),
            },
            RedisError::Moved(redirect) => match self.find(redirect, &route.node) {
                Some(node) => {
                    self.learn(slot(key), &node);
                    self.ask.notify_one();
                    Ok(Route { node, way: SendMode::Batched })
                }
                None => self.ask_again(key).await,
            },
            RedisError::Ask(redirect) => match self.find(redirect, &route.node) {
                Some(node) => Ok(Route { node, way: SendMode::Asking }),
                None => self.ask_again(key).await,
            },
            RedisError::TryAgain | RedisError::Loading => {
                tokio::time::sleep(TRY_AGAIN).await;
                Ok(route)
            }
            RedisError::ReadOnly => {
                // A primary that was demoted: fred finds the new one when it connects anew.
                if self.may_log_refusal() {
                    tracing::warn!(node = %route.node.label(), %error, "Redis refuses to count");
                    connection.renew();
                }
                self.ask.notify_one();
                Err(StoreError::Refused)
            }
            RedisError::Final(StoreError::Lost) => {
                self.ask.notify_one();
                Err(StoreError::Lost)
            }
            RedisError::Memory | RedisError::Final(_) => Err(self.log_refusal(&route.node, error)),
        }
    }

    /// What an error comes to. The words of a refusal are logged: they tell what to mend.
    fn log_refusal(&self, node: &RedisNode, error: &Error) -> StoreError {
        let class = match RedisError::of(error) {
            RedisError::Final(class) => class,
            _ => StoreError::Refused,
        };
        if matches!(class, StoreError::Refused | StoreError::Reply) && self.may_log_refusal() {
            tracing::warn!(node = %node.label(), %error, "Redis refuses to count");
        }
        class
    }

    /// Once a second at most: thousands of calls may meet the same.
    fn may_log_refusal(&self) -> bool {
        let (now, relaxed) = (self.clock.now().0, Ordering::Relaxed);
        let last = self.refusal_logged_at.load(relaxed);
        now.saturating_sub(last) >= Micros::SECOND.0
            && self.refusal_logged_at.compare_exchange(last, now, relaxed, relaxed).is_ok()
    }

    /// The node that another one named. One that is not known yet is made known.
    fn find(&self, redirect: Redirect, asked: &RedisNode) -> Option<Arc<RedisNode>> {
        let host = if redirect.host.is_empty() { asked.host() } else { redirect.host };
        let label = format!("{host}:{}", redirect.port);
        let topology = self.topology.load();
        let found = topology.nodes().iter().find(|node| node.label() == label).cloned();
        if found.is_none() {
            // Of a handful of nodes at most: those that take over their first slot.
            let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            let address = (host, redirect.port);
            if named.len() < NAMED_MAX && !named.contains(&address) {
                named.push(address);
            }
        }
        found
    }

    /// The same step once more, while the keeper gets to know the node that it should go to.
    async fn ask_again(&self, key: &Key) -> Result<Route, StoreError> {
        self.ask.notify_one();
        tokio::time::sleep(TRY_AGAIN).await;
        Ok(Route { node: self.owner(key)?, way: SendMode::Batched })
    }

    /// Remembers that `slot` is `node`'s.
    fn learn(&self, slot: u16, node: &Arc<RedisNode>) {
        self.topology.rcu(|topology| match topology.owner(slot) {
            Some(owner) if Arc::ptr_eq(owner, node) => topology.clone(),
            _ => Arc::new(topology.moved(slot, node.clone())),
        });
    }
}
