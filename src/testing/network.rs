//! A simulated network between instances and the nodes of a Redis Cluster, in virtual time: latency,
//! reordering, loss of requests and of replies, error replies, and outages of single nodes.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::simulated_node::SimulatedNode;
use super::{Rng, lock};
use crate::key::CounterKey;
use crate::store::StoreError;
use crate::time::{Clock, ClockOffset, Micros};

/// What the link to a node does to calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// The shortest latency each way, in milliseconds.
    pub(crate) latency: u64,
    /// The most milliseconds that are added to a latency at random, so that calls overtake others.
    pub(crate) jitter: u64,
    /// Calls of 100 that are lost, with their connection or without.
    pub(crate) loss_percent: u64,
    /// Further calls of 100 that are lost with their connection.
    pub(crate) cut_percent: u64,
}

/// Whether one call and its reply are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Applied,
    RequestLost,
    ReplyLost,
    /// The connection ends, before or after the step is applied.
    Cut {
        applied: bool,
    },
    ErrorReply,
}

/// The latencies of one call, and its delivery.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// Milliseconds to the node.
    pub(super) request_ms: u64,
    /// Milliseconds from the node.
    pub(super) reply_ms: u64,
    pub(super) delivery: Delivery,
}

/// The network, and the nodes behind it.
pub(crate) struct Network {
    begin: Instant,
    /// The clock of the nodes at the beginning.
    epoch: Micros,
    inner: Mutex<Inner>,
    nodes: Box<[Mutex<SimulatedNode>]>,
}

struct Inner {
    rng: Rng,
    /// The link to each node.
    links: Vec<Link>,
    calls: u64,
}

/// The link to one node.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    conditions: Conditions,
    /// Whether no instance has a connection.
    down: bool,
    /// Whether no call arrives.
    stalled: bool,
}

impl Network {
    /// A network to this number of nodes, with the same conditions on every link.
    pub(crate) fn new(
        seed: u64,
        epoch: Micros,
        nodes: usize,
        conditions: Conditions,
    ) -> Arc<Network> {
        let links = vec![Link { conditions, ..Link::default() }; nodes];
        let inner = Inner { rng: Rng::new(seed), links, calls: 0 };
        Arc::new(Network {
            begin: Instant::now(),
            epoch,
            inner: Mutex::new(inner),
            nodes: (0..nodes).map(|_| Mutex::default()).collect(),
        })
    }

    /// The clock of the nodes.
    pub(crate) fn now(&self) -> Micros {
        let elapsed = u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.epoch.saturating_add(Micros(elapsed))
    }

    /// The instant of the virtual clock that is `millis` after the beginning.
    pub(crate) fn at(&self, millis: u64) -> Instant {
        self.begin + Duration::from_millis(millis)
    }

    /// The number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The node that has the counter `key`.
    pub(crate) fn node_of(&self, key: &CounterKey) -> usize {
        (key.0[1] % self.nodes.len() as u64) as usize
    }

    /// A node.
    pub(crate) fn node(&self, node: usize) -> MutexGuard<'_, SimulatedNode> {
        lock(&self.nodes[node])
    }

    /// Sets the conditions on the link to a node.
    pub(crate) fn set_conditions(&self, node: usize, conditions: Conditions) {
        lock(&self.inner).links[node].conditions = conditions;
    }

    /// Sets whether no instance has a connection to a node.
    pub(crate) fn set_down(&self, node: usize, down: bool) {
        lock(&self.inner).links[node].down = down;
    }

    /// Sets whether no call arrives at a node.
    pub(crate) fn set_stalled(&self, node: usize, stalled: bool) {
        lock(&self.inner).links[node].stalled = stalled;
    }

    /// Whether no instance has a connection to a node.
    pub(super) fn is_down(&self, node: usize) -> bool {
        lock(&self.inner).links[node].down
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        lock(&self.inner).calls
    }

    /// The latencies and the delivery of the next call to a node.
    pub(super) fn round_trip(&self, node: usize) -> RoundTrip {
        let mut inner = lock(&self.inner);
        let Link { conditions, stalled, .. } = inner.links[node];
        let Conditions { latency, jitter, loss_percent, cut_percent } = conditions;
        let rng = &mut inner.rng;
        let delivery = if stalled {
            Delivery::RequestLost
        } else if loss_percent > 0 && rng.chance(loss_percent) {
            rng.pick(&[
                Delivery::RequestLost,
                Delivery::ReplyLost,
                Delivery::Cut { applied: false },
                Delivery::Cut { applied: true },
                Delivery::ErrorReply,
            ])
        } else if cut_percent > 0 && rng.chance(cut_percent) {
            Delivery::Cut { applied: rng.chance(50) }
        } else {
            Delivery::Applied
        };
        let request_ms = latency + rng.below(jitter + 1);
        let reply_ms = latency + rng.below(jitter + 1);
        RoundTrip { request_ms, reply_ms, delivery }
    }

    /// Sends a call to a node. It continues, even if its caller stops waiting.
    pub(super) fn send<T: Send + 'static>(
        self: &Arc<Self>,
        node: usize,
        call: impl FnOnce(&mut SimulatedNode, Micros) -> T + Send + 'static,
    ) -> (Delivery, oneshot::Receiver<Result<T, StoreError>>) {
        let (sender, receiver) = oneshot::channel();
        let RoundTrip { request_ms, reply_ms, delivery } = self.round_trip(node);
        lock(&self.inner).calls += 1;
        let network = self.clone();
        tokio::spawn(async move {
            delay(request_ms).await;
            let applies = !matches!(
                delivery,
                Delivery::RequestLost | Delivery::ErrorReply | Delivery::Cut { applied: false }
            );
            let answer = applies.then(|| call(&mut network.node(node), network.now()));
            delay(reply_ms).await;
            let result = match (delivery, answer) {
                (Delivery::Applied, Some(answer)) => Ok(answer),
                (Delivery::ErrorReply, _) => Err(StoreError::ErrorReply),
                (Delivery::Cut { .. }, _) => Err(StoreError::ConnectionLost),
                _ => return,
            };
            let _ = sender.send(result);
        });
        (delivery, receiver)
    }
}

/// Waits for the latency of one way.
pub(super) async fn delay(millis: u64) {
    if millis > 0 {
        sleep(Duration::from_millis(millis)).await;
    }
}

/// The clock of one instance.
#[derive(Clone)]
pub(crate) struct LocalClock {
    network: Arc<Network>,
    /// The offset of the nodes' clocks.
    offset: ClockOffset,
}

impl LocalClock {
    /// A clock that is `ahead` microseconds ahead of the nodes.
    pub(crate) fn new(network: &Arc<Network>, ahead: i64) -> LocalClock {
        LocalClock { network: network.clone(), offset: ClockOffset::from_micros(-ahead) }
    }

    /// The offset of the nodes' clocks.
    pub(super) fn offset(&self) -> ClockOffset {
        self.offset
    }
}

impl Clock for LocalClock {
    fn now(&self) -> Micros {
        self.offset.local(self.network.now())
    }
}
