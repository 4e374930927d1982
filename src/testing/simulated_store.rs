//! One instance's connections to the simulated nodes, and its estimates of their clocks.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::lock;
use super::network::{Delivery, LocalClock, Network, RoundTrip, delay};
use crate::key::CounterKey;
use crate::step::{Outcome, Step};
use crate::store::redis::rtt_samples::{RttSample, RttSamples};
use crate::store::{NodeAware, NodeId, SharedStore, StoreError};
use crate::time::{Clock, ClockOffset, Micros};

/// The store of one instance, beneath its breaker and timeouts.
pub(crate) struct SimulatedStore {
    network: Arc<Network>,
    instance: usize,
    clock: LocalClock,
    /// The estimate of each node's clock.
    estimates: Box<[Mutex<Estimate>]>,
    timeout: Option<Duration>,
    /// Detached calls whose step was possibly not applied.
    lost: Mutex<Vec<LostCall>>,
}

/// What an instance knows about the clock of a node.
struct Estimate {
    samples: RttSamples,
    offset: ClockOffset,
    /// The largest error of `offset` so far.
    worst: Micros,
}

/// A call without an outcome.
#[derive(Clone, Debug)]
pub(crate) struct LostCall {
    pub(crate) key: CounterKey,
    pub(crate) step: Step,
    /// When it was sent, by the clock of the nodes.
    pub(crate) sent: Micros,
    /// Whether the step was possibly applied.
    pub(crate) may_have_run: bool,
}

impl SimulatedStore {
    /// The connections of an instance. Its estimates are exact until the first measurement.
    pub(crate) fn new(
        network: &Arc<Network>,
        instance: usize,
        clock: &LocalClock,
    ) -> SimulatedStore {
        let offset = clock.offset();
        let estimate = |_| {
            Mutex::new(Estimate { samples: RttSamples::default(), offset, worst: Micros::ZERO })
        };
        SimulatedStore {
            network: network.clone(),
            instance,
            clock: clock.clone(),
            estimates: (0..network.nodes()).map(estimate).collect(),
            timeout: None,
            lost: Mutex::default(),
        }
    }

    /// These connections with a timeout that callers read. It ends no call.
    pub(crate) fn with_timeout(self, timeout: Option<Duration>) -> SimulatedStore {
        SimulatedStore { timeout, ..self }
    }

    /// The network.
    pub(crate) fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// Detached calls whose step was possibly not applied.
    pub(crate) fn lost(&self) -> Vec<LostCall> {
        lock(&self.lost).clone()
    }

    /// The largest error of an estimate so far.
    pub(crate) fn worst_estimate(&self) -> Micros {
        let worst = self.estimates.iter().map(|estimate| lock(estimate).worst);
        worst.max().unwrap_or_default()
    }

    /// Measures the clock of every node by a round trip that takes no time.
    pub(crate) fn measure_at_once(&self) {
        for node in 0..self.network.nodes() {
            let RoundTrip { request_ms, reply_ms, .. } = self.network.round_trip(node);
            let (request_time, reply_time) =
                (Micros::from_millis(request_ms), Micros::from_millis(reply_ms));
            let sent = self.clock.now();
            let received = sent.saturating_add(request_time).saturating_add(reply_time);
            let sample =
                RttSample { sent, received, node: self.network.now().saturating_add(request_time) };
            self.add(node, sample);
        }
    }

    /// Measures the clock of a node, if its reply arrives.
    pub(crate) async fn measure(&self, node: usize) {
        let RoundTrip { request_ms, reply_ms, delivery } = self.network.round_trip(node);
        if self.network.is_down(node) || delivery != Delivery::Applied {
            return;
        }
        let sent = self.clock.now();
        delay(request_ms).await;
        let shown = self.network.now();
        delay(reply_ms).await;
        self.add(node, RttSample { sent, received: self.clock.now(), node: shown });
    }

    fn add(&self, node: usize, sample: RttSample) {
        let mut estimate = lock(&self.estimates[node]);
        estimate.offset = estimate.samples.add(sample);
        let error = estimate.offset.micros().abs_diff(self.clock.offset().micros());
        estimate.worst = estimate.worst.max(Micros(error));
    }
}

impl SharedStore for SimulatedStore {
    fn now(&self, key: &CounterKey, local: Micros) -> Result<Micros, StoreError> {
        let node = self.network.node_of(key);
        if self.network.is_down(node) {
            return Err(StoreError::Unreachable);
        }
        Ok(lock(&self.estimates[node]).offset.remote(local))
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    async fn apply_within(
        &self,
        key: &CounterKey,
        step: &Step,
        _: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let node = self.network.node_of(key);
        if self.network.is_down(node) {
            return Err(StoreError::Unreachable);
        }
        let (key, step, instance) = (*key, step.clone(), self.instance);
        let (_, answer) =
            self.network.send(node, move |redis, now| redis.apply(now, instance, key, &step));
        let Ok(result) = answer.await else { return pending().await };
        result
    }

    fn apply_detached(&self, key: &CounterKey, step: Step) {
        let (node, key) = (self.network.node_of(key), *key);
        let lost = LostCall {
            key,
            step: step.clone(),
            sent: self.network.now(),
            may_have_run: !self.network.is_down(node),
        };
        if !lost.may_have_run {
            return lock(&self.lost).push(lost);
        }
        let instance = self.instance;
        let (delivery, _) =
            self.network.send(node, move |redis, now| redis.apply(now, instance, key, &step));
        if delivery != Delivery::Applied {
            lock(&self.lost).push(lost);
        }
    }

    async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        let node = self.network.node_of(key);
        if self.network.is_down(node) {
            return Err(StoreError::Unreachable);
        }
        let (key, instance) = (*key, self.instance);
        let (_, answer) =
            self.network.send(node, move |redis, now| redis.delete(now, instance, key));
        let Ok(result) = answer.await else { return pending().await };
        result
    }
}

impl NodeAware for SimulatedStore {
    fn node(&self, key: &CounterKey) -> NodeId {
        NodeId(self.network.node_of(key) as u32)
    }

    fn node_address(&self, node: NodeId) -> String {
        format!("simulated {}", node.0)
    }
}
