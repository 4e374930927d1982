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

use super::{NodeId, Store, StoreError};
use crate::key::Key;
use crate::step::{Outcome, Step};
use crate::time::{Clock, Micros, SystemClock};

pub mod batch;
mod fault;
mod forget;
mod keeper;
mod lane;
mod name;
mod node;
mod offset;
mod queue;
mod reach;
pub mod script;
mod tally;
mod topology;

pub use reach::{Reach, ReachError, RedisTls};
pub use tally::Traffic;

use batch::Call;
use fault::{Elsewhere, Fault};
use lane::Lane;
use name::{Name, slot};
use node::Node;
use queue::Setback;
use script::{Message, Script};
use tally::Tally;
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
    shared: Arc<Shared>,
    /// Ends the keeper when dropped.
    _keeper: oneshot::Sender<()>,
}

/// What calls and the keeper both know.
#[derive(Debug)]
struct Shared {
    clock: SystemClock,
    topology: ArcSwap<Topology>,
    /// Wakes the keeper: the topology has changed, or seems to.
    ask: Notify,
    /// Connections per node and core.
    lanes: usize,
    /// Addresses that nodes named and the keeper does not know yet.
    named: Mutex<Vec<(String, u16)>>,
    /// The most steps per call.
    steps_max: usize,
    /// The parts, by number.
    parts: Mutex<Vec<Part>>,
    /// When the words of a refusal were last logged, by our clock.
    complained: AtomicU64,
}

/// What stays of a node that goes, for when it comes back.
#[derive(Debug)]
struct Part {
    label: String,
    tally: Arc<Tally>,
}

impl RedisStore {
    /// Begins to connect, and returns at once: until there is a connection, and whenever there is
    /// none, every call fails. Never gives up. `clock` is the one that [`Store::now`] is asked with.
    ///
    /// # Errors
    /// Settings that no server could ever be reached with, or a thread that cannot be had.
    pub fn start(reach: &Reach, clock: SystemClock) -> Result<RedisStore, ReachError> {
        let config = reach.config()?;
        let shared = Arc::new(Shared {
            clock,
            topology: ArcSwap::from_pointee(Topology::unknown()),
            ask: Notify::new(),
            lanes: reach.connections,
            steps_max: reach.batch.max(1),
            named: Mutex::default(),
            parts: Mutex::default(),
            complained: AtomicU64::new(0),
        });
        let (keeper, dropped) = oneshot::channel::<()>();
        let kept = shared.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("weir-redis".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = keeper::run(kept.clone(), config) => {}
                    _ = dropped => {}
                }
                for node in kept.topology.load().nodes() {
                    node.leave();
                }
            });
        })?;
        Ok(RedisStore { shared, _keeper: keeper })
    }

    /// Whether any counter can be counted at present, as far as is known.
    pub fn is_reachable(&self) -> bool {
        let topology = self.shared.topology.load();
        topology.nodes().iter().any(|node| node.is_up())
    }

    /// What Redis calls the counter `key`.
    pub fn name_of(&self, key: &Key) -> String {
        String::from_utf8_lossy(Name::of(key).as_ref()).into_owned()
    }

    /// The nodes that own counters, with their names.
    pub fn parts(&self) -> Vec<(NodeId, String)> {
        let topology = self.shared.topology.load();
        topology.nodes().iter().map(|node| (node.part(), node.label().to_owned())).collect()
    }

    /// What was sent to `part`.
    pub fn traffic(&self, part: NodeId) -> Traffic {
        let parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.get(part.0 as usize).map(|part| part.tally.traffic()).unwrap_or_default()
    }
}

impl From<io::Error> for ReachError {
    fn from(error: io::Error) -> ReachError {
        ReachError::new(format!("the thread that minds Redis did not start: {error}"))
    }
}

impl Store for RedisStore {
    fn now(&self, key: &Key, local: Micros) -> Result<Micros, StoreError> {
        let topology = self.shared.topology.load();
        let node = topology.owner(slot(key)).ok_or(StoreError::Unreachable)?;
        node.now(local).ok_or(StoreError::Unreachable)
    }

    fn node(&self, key: &Key) -> NodeId {
        let topology = self.shared.topology.load();
        topology.owner(slot(key)).map_or(NodeId(0), |node| node.part())
    }

    async fn apply(&self, key: &Key, step: &Step) -> Result<Outcome, StoreError> {
        self.shared.apply(key, step).await
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
struct Aim {
    node: Arc<Node>,
    way: Way,
}

/// How it goes there.
#[derive(Clone, Copy)]
enum Way {
    /// In a call with whatever else goes there.
    Together,
    /// In a call of its own.
    Alone,
    /// The same, and the slot is on its way there: say so.
    Asking,
}

impl Shared {
    async fn apply(&self, key: &Key, step: &Step) -> Result<Outcome, StoreError> {
        let (name, message) = (Name::of(key), Message::of(step));
        let mut aim = Aim { node: self.owner(key)?, way: Way::Together };
        for _ in 0..SENDS_MAX {
            let lane = aim.node.lane(key).ok_or(StoreError::Unreachable)?;
            lane.ready().await?;
            let alone = || Call::alone(name, &message, ());
            let answer = match aim.way {
                Way::Together => queue::ask(&lane, self.group(key), name, message.clone()).await?,
                Way::Alone => queue::own(lane.call(&mut alone()).await),
                Way::Asking => queue::own(lane.call_asking(&mut alone()).await),
            };
            match answer {
                Ok(bytes) => {
                    return script::decode(step, &bytes).map_err(|_| StoreError::Reply);
                }
                Err(Setback::Reply) => return Err(StoreError::Reply),
                Err(Setback::Company) => aim.way = Way::Alone,
                Err(Setback::Error(error)) => {
                    aim = self.next(aim, key, &error, &lane, message.script).await?;
                }
            }
        }
        Err(StoreError::Refused)
    }

    fn owner(&self, key: &Key) -> Result<Arc<Node>, StoreError> {
        self.topology.load().owner(slot(key)).cloned().ok_or(StoreError::Unreachable)
    }

    /// Which counters can share a call with this one: all, but in a cluster those of its slot.
    fn group(&self, key: &Key) -> u16 {
        if self.topology.load().is_cluster() { slot(key) } else { 0 }
    }

    /// Where to send a step again that certainly did not run.
    async fn next(
        &self,
        aim: Aim,
        key: &Key,
        error: &Error,
        lane: &Lane,
        script: Script,
    ) -> Result<Aim, StoreError> {
        match Fault::of(error) {
            Fault::NoScript => match lane.load(script.source()).await {
                Ok(()) => Ok(aim),
                Err(error) => Err(self.complain(&aim.node, &error)),
            },
            Fault::Moved(elsewhere) => match self.find(elsewhere, &aim.node) {
                Some(node) => {
                    self.learn(slot(key), &node);
                    self.ask.notify_one();
                    Ok(Aim { node, way: Way::Together })
                }
                None => self.ask_again(key).await,
            },
            Fault::Ask(elsewhere) => match self.find(elsewhere, &aim.node) {
                Some(node) => Ok(Aim { node, way: Way::Asking }),
                None => self.ask_again(key).await,
            },
            Fault::TryAgain | Fault::Loading => {
                tokio::time::sleep(TRY_AGAIN).await;
                Ok(aim)
            }
            Fault::ReadOnly => {
                // A primary that was demoted: fred finds the new one when it connects anew.
                if self.may_complain() {
                    tracing::warn!(node = %aim.node.label(), %error, "Redis refuses to count");
                    lane.renew();
                }
                self.ask.notify_one();
                Err(StoreError::Refused)
            }
            Fault::Final(StoreError::Lost) => {
                self.ask.notify_one();
                Err(StoreError::Lost)
            }
            Fault::Memory | Fault::Final(_) => Err(self.complain(&aim.node, error)),
        }
    }

    /// What an error comes to. The words of a refusal are logged: they tell what to mend.
    fn complain(&self, node: &Node, error: &Error) -> StoreError {
        let class = match Fault::of(error) {
            Fault::Final(class) => class,
            _ => StoreError::Refused,
        };
        if matches!(class, StoreError::Refused | StoreError::Reply) && self.may_complain() {
            tracing::warn!(node = %node.label(), %error, "Redis refuses to count");
        }
        class
    }

    /// Once a second at most: thousands of calls may meet the same.
    fn may_complain(&self) -> bool {
        let (now, relaxed) = (self.clock.now().0, Ordering::Relaxed);
        let last = self.complained.load(relaxed);
        now.saturating_sub(last) >= Micros::SECOND.0
            && self.complained.compare_exchange(last, now, relaxed, relaxed).is_ok()
    }

    /// The node that another one named. One that is not known yet is made known.
    fn find(&self, elsewhere: Elsewhere, asked: &Node) -> Option<Arc<Node>> {
        let host = if elsewhere.host.is_empty() { asked.host() } else { elsewhere.host };
        let label = format!("{host}:{}", elsewhere.port);
        let topology = self.topology.load();
        let found = topology.nodes().iter().find(|node| node.label() == label).cloned();
        if found.is_none() {
            // Of a handful of nodes at most: those that take over their first slot.
            let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            let address = (host, elsewhere.port);
            if named.len() < NAMED_MAX && !named.contains(&address) {
                named.push(address);
            }
        }
        found
    }

    /// The same step once more, while the keeper gets to know the node that it should go to.
    async fn ask_again(&self, key: &Key) -> Result<Aim, StoreError> {
        self.ask.notify_one();
        tokio::time::sleep(TRY_AGAIN).await;
        Ok(Aim { node: self.owner(key)?, way: Way::Together })
    }

    /// Remembers that `slot` is `node`'s.
    fn learn(&self, slot: u16, node: &Arc<Node>) {
        self.topology.rcu(|topology| match topology.owner(slot) {
            Some(owner) if Arc::ptr_eq(owner, node) => topology.clone(),
            _ => Arc::new(topology.moved(slot, node.clone())),
        });
    }
}
