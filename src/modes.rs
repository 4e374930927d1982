//! Backend: how often a decision visits the store, one module per way, composed here and nowhere
//! else.
//!
//! ```text
//! exact  -> over-limit cache -> store
//! leased -> over-limit cache -> store
//! synced -------------------->  store
//! ```
//!
//! A layer answers what it can tell without the store, and asks the next one for the rest. The three
//! modes have one trait; the over-limit cache has the store's own, so that what stands above it does
//! not know what stands below.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;

use crate::decision::Decision;
use crate::key::Key;
use crate::limit::{Limit, Mode};
use crate::step::{Lease, Step};
use crate::store::{MemoryStore, Store, StoreError};
use crate::time::Micros;

mod exact;
mod leased;
mod over_limit;
mod synced;

pub use leased::LeasedCounts;
pub use synced::SyncedCounts;

use exact::ExactPath;
use leased::LeasedPath;
use over_limit::{OverLimitCache, OverLimitStore};
use synced::SyncedPath;

/// What one descriptor of a request asks of its counter.
#[derive(Clone, Copy, Debug)]
pub struct CounterCheck<'a> {
    /// Which counter.
    pub key: &'a Key,
    /// What to hold it against.
    pub limit: &'a Limit,
    /// Hits to take (positive), 0 to look, negative to give back.
    pub hits: i64,
    /// The lease that they are taken under or that they end; in mode exact only.
    pub lease: Option<Lease>,
    /// How often to visit the store.
    pub mode: Mode,
    /// A denial may come from memory, while the counter is known to be full; in mode exact only.
    pub over_limit_cache: bool,
    /// The instant of the request, by our own clock.
    pub local: Micros,
    /// The same instant by the clock of the store, if that can be told.
    pub now: Result<Micros, StoreError>,
    /// How long the caller will wait.
    pub timeout: Option<Duration>,
}

impl CounterCheck<'_> {
    /// It returns or settles what was taken before.
    fn gives_back(&self) -> bool {
        self.hits < 0 || matches!(self.lease, Some(Lease::Close(_)))
    }
}

/// Something that decides, from what it knows or by asking another.
pub trait ModePath: Send + Sync + 'static {
    /// Decides. An error means that nothing could be told, and the rule's fallback decides.
    fn check(
        &self,
        check: &CounterCheck<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Applies a step that gives back what a decision in `mode` had taken, without anybody waiting.
    fn apply_detached(&self, key: &Key, mode: Mode, step: Step);

    /// Does what is due at `local`, by our own clock: exchanges counts, gives back what lies idle.
    fn run_due(&self, local: Micros) -> impl Future<Output = ()> + Send;

    /// Brings to the store whatever it does not know yet: the process is about to end.
    fn close(&self, local: Micros) -> impl Future<Output = ()> + Send;
}

/// For how long a leased rule's denial is remembered, at most: what another instance gives back
/// unspent, as they all do, shall be seen soon.
const LEASED_DENIAL: Micros = Micros::SECOND;

/// The layers around a store.
pub enum Backend<S> {
    /// A store of this process alone: it answers at once, so nothing stands before it.
    Own(ExactPath<S>),
    /// A store that instances share.
    Shared(Modes<S>),
}

/// One layer per mode; the rule's mode chooses.
pub struct Modes<S> {
    /// Of rules without an over-limit cache.
    plain: ExactPath<S>,
    exact: ExactPath<OverLimitStore<S>>,
    leased: LeasedPath<OverLimitStore<S>>,
    synced: SyncedPath<S>,
    full: Arc<OverLimitCache>,
    /// There is an over-limit cache.
    remembers: bool,
}

impl<S: Store> Backend<S> {
    /// For a store that only this process counts in.
    pub fn own(store: S) -> Backend<S> {
        Backend::Own(ExactPath::new(Arc::new(store)))
    }

    /// For a store that instances share.
    pub fn shared(store: S) -> Backend<S> {
        Backend::remembering(store, true)
    }

    /// The same without an over-limit cache.
    pub fn without_over_limit_cache(store: S) -> Backend<S> {
        Backend::remembering(store, false)
    }

    fn remembering(store: S, denials: bool) -> Backend<S> {
        let (store, full) = (Arc::new(store), Arc::new(OverLimitCache::new()));
        let over_limit = || OverLimitStore::new(store.clone(), full.clone());
        let leased_denial = if denials { LEASED_DENIAL } else { Micros::ZERO };
        Backend::Shared(Modes {
            remembers: denials,
            plain: ExactPath::new(store.clone()),
            exact: ExactPath::new(Arc::new(over_limit())),
            leased: LeasedPath::new(Arc::new(over_limit().for_at_most(leased_denial))),
            synced: SyncedPath::new(store.clone()),
            full,
        })
    }

    /// The store behind them.
    pub fn store(&self) -> &S {
        match self {
            Backend::Own(exact) => exact.store(),
            Backend::Shared(modes) => modes.plain.store(),
        }
    }

    /// The store behind them, if that answers at once and nothing stands before it:
    /// [`CounterCheck::of_memory`] then decides as they do.
    pub fn in_memory(&self) -> Option<&MemoryStore> {
        match self {
            Backend::Own(exact) => exact.store().in_memory(),
            Backend::Shared(_) => None,
        }
    }

    /// Forgets the counter `key`, in the store and in whatever stands before it.
    pub async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        match self {
            Backend::Own(exact) => exact.store().forget(key).await,
            Backend::Shared(modes) => {
                modes.leased.forget(key);
                modes.synced.forget(key);
                modes.exact.store().forget(key).await
            }
        }
    }

    /// The layers between, where there are any, for metrics.
    pub fn between(&self) -> Option<&Modes<S>> {
        match self {
            Backend::Own(_) => None,
            Backend::Shared(modes) => Some(modes),
        }
    }
}

impl<S> Modes<S> {
    /// The layer of leased rules.
    pub fn leased(&self) -> &LeasedPath<OverLimitStore<S>> {
        &self.leased
    }

    /// The layer of synced rules.
    pub fn synced(&self) -> &SyncedPath<S> {
        &self.synced
    }

    /// The counters that are known to be full.
    pub fn full(&self) -> &OverLimitCache {
        &self.full
    }
}

impl<S: Store> ModePath for Backend<S> {
    async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        match self {
            Backend::Own(exact) => exact.check(check).await,
            Backend::Shared(layers) => layers.check(check).await,
        }
    }

    fn apply_detached(&self, key: &Key, mode: Mode, step: Step) {
        match self {
            Backend::Own(exact) => exact.apply_detached(key, mode, step),
            Backend::Shared(layers) => layers.apply_detached(key, mode, step),
        }
    }

    async fn run_due(&self, local: Micros) {
        if let Backend::Shared(layers) = self {
            layers.run_due(local).await;
        }
    }

    async fn close(&self, local: Micros) {
        if let Backend::Shared(layers) = self {
            layers.close(local).await;
        }
    }
}

impl<S: Store> ModePath for Modes<S> {
    async fn check(&self, check: &CounterCheck<'_>) -> Result<Decision, StoreError> {
        match check.mode {
            // What gives back goes by the cache, whatever the rule says now: it has to forget.
            Mode::Exact if self.remembers && check.over_limit_cache || check.gives_back() => {
                self.exact.check(check).await
            }
            Mode::Exact => self.plain.check(check).await,
            Mode::Leased => self.leased.check(check).await,
            Mode::Synced { .. } => {
                if check.gives_back() {
                    self.full.forget(check.key, check.now.unwrap_or(check.local));
                }
                self.synced.check(check).await
            }
        }
    }

    fn apply_detached(&self, key: &Key, mode: Mode, step: Step) {
        match mode {
            Mode::Exact => self.exact.apply_detached(key, mode, step),
            Mode::Leased => self.leased.apply_detached(key, mode, step),
            Mode::Synced { .. } => {
                self.full.forget(key, step.now);
                self.synced.apply_detached(key, mode, step);
            }
        }
    }

    async fn run_due(&self, local: Micros) {
        join(self.leased.run_due(local), self.synced.run_due(local)).await;
    }

    async fn close(&self, local: Micros) {
        join(self.leased.close(local), self.synced.close(local)).await;
    }
}
