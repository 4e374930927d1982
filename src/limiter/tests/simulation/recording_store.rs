//! The store of an instance as in production, with a record of every call.

use std::sync::Mutex;
use std::time::Duration;

use crate::key::CounterKey;
use crate::step::{Outcome, Step};
use crate::store::{GuardedStore, SharedStore, StoreError};
use crate::testing::lock;
use crate::testing::network::LocalClock;
use crate::testing::simulated_store::{LostCall, SimulatedStore};
use crate::time::Micros;

/// The store of one instance: the guarded store of production over simulated connections.
pub(super) struct RecordingStore {
    store: GuardedStore<SimulatedStore, LocalClock>,
    instance: usize,
    calls: Mutex<Vec<RecordedCall>>,
}

/// One call, or one reading of a node's clock that failed.
#[derive(Clone, Debug)]
pub(super) struct RecordedCall {
    pub(super) instance: usize,
    pub(super) key: CounterKey,
    /// The step; `None` for a reading of the clock.
    pub(super) step: Option<Step>,
    /// When it was sent, by the clock of the nodes.
    pub(super) sent: Micros,
    /// When it ended, or was dropped.
    pub(super) ended: Micros,
    /// The error; `None` if there was an outcome.
    pub(super) error: Option<StoreError>,
}

impl RecordingStore {
    pub(super) fn new(
        simulated: SimulatedStore,
        clock: LocalClock,
        instance: usize,
        timeout: Duration,
    ) -> RecordingStore {
        let store = GuardedStore::new(simulated, clock, timeout);
        RecordingStore { store, instance, calls: Mutex::default() }
    }

    /// The store of production.
    pub(super) fn guarded(&self) -> &GuardedStore<SimulatedStore, LocalClock> {
        &self.store
    }

    /// The calls so far.
    pub(super) fn calls(&self) -> Vec<RecordedCall> {
        lock(&self.calls).clone()
    }

    fn now_of_nodes(&self) -> Micros {
        self.store.store().network().now()
    }

    /// The call, before its result. A call that is dropped has none.
    fn begin(&self, key: &CounterKey, step: Option<&Step>) -> CallRecorder<'_> {
        let sent = self.now_of_nodes();
        let call = RecordedCall {
            instance: self.instance,
            key: *key,
            step: step.cloned(),
            sent,
            ended: sent,
            error: Some(StoreError::Timeout),
        };
        CallRecorder { store: self, call: Some(call) }
    }
}

/// Records a call when it ends.
struct CallRecorder<'a> {
    store: &'a RecordingStore,
    call: Option<RecordedCall>,
}

impl CallRecorder<'_> {
    fn end(mut self, error: Option<StoreError>) {
        if let Some(call) = &mut self.call {
            call.error = error;
        }
    }
}

impl Drop for CallRecorder<'_> {
    fn drop(&mut self) {
        let ended = self.store.now_of_nodes();
        let call = self.call.take().map(|call| RecordedCall { ended, ..call });
        lock(&self.store.calls).extend(call);
    }
}

impl RecordedCall {
    /// Whether there was no outcome.
    pub(super) fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Whether the hits of the call count even if they are denied.
    pub(super) fn counts_denied(&self) -> bool {
        self.step.as_ref().is_some_and(|step| step.hits > 0 && step.count_denied)
    }

    /// The instant of a call that gave hits back, and had an outcome.
    pub(super) fn gave_back(&self) -> Option<Micros> {
        let gives = self.step.as_ref().is_some_and(|step| step.hits < 0);
        (gives && !self.failed()).then_some(self.sent)
    }

    /// The call as one without an outcome.
    pub(super) fn lost(&self) -> Option<LostCall> {
        let (step, error) = (self.step.clone()?, self.error?);
        let may_have_run = error.may_have_run();
        Some(LostCall { key: self.key, step, sent: self.sent, may_have_run })
    }
}

impl SharedStore for RecordingStore {
    fn now(&self, key: &CounterKey, local: Micros) -> Result<Micros, StoreError> {
        self.store.now(key, local).inspect_err(|error| self.begin(key, None).end(Some(*error)))
    }

    fn timeout(&self) -> Option<Duration> {
        self.store.timeout()
    }

    async fn apply_within(
        &self,
        key: &CounterKey,
        step: &Step,
        timeout: Option<Duration>,
    ) -> Result<Outcome, StoreError> {
        let call = self.begin(key, Some(step));
        let result = self.store.apply_within(key, step, timeout).await;
        call.end(result.as_ref().err().copied());
        result
    }

    fn apply_detached(&self, key: &CounterKey, step: Step) {
        self.store.apply_detached(key, step);
    }

    async fn delete(&self, key: &CounterKey) -> Result<bool, StoreError> {
        self.store.delete(key).await
    }
}
