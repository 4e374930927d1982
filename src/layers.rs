//! Layers: how often a decision visits the store, one module per way, composed here and nowhere
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

pub use leased::LeaseCounts;
pub use synced::SyncCounts;

use exact::Exact;
use leased::Leased;
use over_limit::{Full, OverLimit};
use synced::Synced;

/// What one descriptor of a request asks of its counter.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
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

impl Ask<'_> {
    /// It returns or settles what was taken before.
    fn gives_back(&self) -> bool {
        self.hits < 0 || matches!(self.lease, Some(Lease::Close(_)))
    }
}

/// Something that decides, from what it knows or by asking another.
pub trait Layer: Send + Sync + 'static {
    /// Decides. An error means that nothing could be told, and the rule's fallback decides.
    fn ask(&self, ask: &Ask<'_>) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Applies a step that gives back what a decision in `mode` had taken, without anybody waiting.
    fn tell(&self, key: &Key, mode: Mode, step: Step);

    /// Does what is due at `local`, by our own clock: exchanges counts, gives back what lies idle.
    fn tick(&self, local: Micros) -> impl Future<Output = ()> + Send;

    /// Brings to the store whatever it does not know yet: the process is about to end.
    fn close(&self, local: Micros) -> impl Future<Output = ()> + Send;
}

/// For how long a leased rule's denial is remembered, at most: what another instance gives back
/// unspent, as they all do, shall be seen soon.
const LEASED_DENIAL: Micros = Micros::SECOND;

/// The layers around a store.
pub enum Layers<S> {
    /// A store of this process alone: it answers at once, so nothing stands before it.
    Own(Exact<S>),
    /// A store that instances share.
    Shared(Modes<S>),
}

/// One layer per mode; the rule's mode chooses.
pub struct Modes<S> {
    /// Of rules without an over-limit cache.
    plain: Exact<S>,
    exact: Exact<OverLimit<S>>,
    leased: Leased<OverLimit<S>>,
    synced: Synced<S>,
    full: Arc<Full>,
    /// There is an over-limit cache.
    remembers: bool,
}

impl<S: Store> Layers<S> {
    /// For a store that only this process counts in.
    pub fn own(store: S) -> Layers<S> {
        Layers::Own(Exact::new(Arc::new(store)))
    }

    /// For a store that instances share.
    pub fn shared(store: S) -> Layers<S> {
        Layers::remembering(store, true)
    }

    /// The same without an over-limit cache.
    pub fn without_over_limit_cache(store: S) -> Layers<S> {
        Layers::remembering(store, false)
    }

    fn remembering(store: S, denials: bool) -> Layers<S> {
        let (store, full) = (Arc::new(store), Arc::new(Full::new()));
        let over_limit = || OverLimit::new(store.clone(), full.clone());
        let leased_denial = if denials { LEASED_DENIAL } else { Micros::ZERO };
        Layers::Shared(Modes {
            remembers: denials,
            plain: Exact::new(store.clone()),
            exact: Exact::new(Arc::new(over_limit())),
            leased: Leased::new(Arc::new(over_limit().for_at_most(leased_denial))),
            synced: Synced::new(store.clone()),
            full,
        })
    }

    /// The store behind them.
    pub fn store(&self) -> &S {
        match self {
            Layers::Own(exact) => exact.store(),
            Layers::Shared(modes) => modes.plain.store(),
        }
    }

    /// The store behind them, if that answers at once and nothing stands before it:
    /// [`Ask::of_memory`] then decides as they do.
    pub fn in_memory(&self) -> Option<&MemoryStore> {
        match self {
            Layers::Own(exact) => exact.store().in_memory(),
            Layers::Shared(_) => None,
        }
    }

    /// Forgets the counter `key`, in the store and in whatever stands before it.
    pub async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        match self {
            Layers::Own(exact) => exact.store().forget(key).await,
            Layers::Shared(modes) => {
                modes.leased.forget(key);
                modes.synced.forget(key);
                modes.exact.store().forget(key).await
            }
        }
    }

    /// The layers between, where there are any, for metrics.
    pub fn between(&self) -> Option<&Modes<S>> {
        match self {
            Layers::Own(_) => None,
            Layers::Shared(modes) => Some(modes),
        }
    }
}

impl<S> Modes<S> {
    /// The layer of leased rules.
    pub fn leased(&self) -> &Leased<OverLimit<S>> {
        &self.leased
    }

    /// The layer of synced rules.
    pub fn synced(&self) -> &Synced<S> {
        &self.synced
    }

    /// The counters that are known to be full.
    pub fn full(&self) -> &Full {
        &self.full
    }
}

impl<S: Store> Layer for Layers<S> {
    async fn ask(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        match self {
            Layers::Own(exact) => exact.ask(ask).await,
            Layers::Shared(layers) => layers.ask(ask).await,
        }
    }

    fn tell(&self, key: &Key, mode: Mode, step: Step) {
        match self {
            Layers::Own(exact) => exact.tell(key, mode, step),
            Layers::Shared(layers) => layers.tell(key, mode, step),
        }
    }

    async fn tick(&self, local: Micros) {
        if let Layers::Shared(layers) = self {
            layers.tick(local).await;
        }
    }

    async fn close(&self, local: Micros) {
        if let Layers::Shared(layers) = self {
            layers.close(local).await;
        }
    }
}

impl<S: Store> Layer for Modes<S> {
    async fn ask(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        match ask.mode {
            // What gives back goes by the cache, whatever the rule says now: it has to forget.
            Mode::Exact if self.remembers && ask.over_limit_cache || ask.gives_back() => {
                self.exact.ask(ask).await
            }
            Mode::Exact => self.plain.ask(ask).await,
            Mode::Leased => self.leased.ask(ask).await,
            Mode::Synced { .. } => {
                if ask.gives_back() {
                    self.full.forget(ask.key, ask.now.unwrap_or(ask.local));
                }
                self.synced.ask(ask).await
            }
        }
    }

    fn tell(&self, key: &Key, mode: Mode, step: Step) {
        match mode {
            Mode::Exact => self.exact.tell(key, mode, step),
            Mode::Leased => self.leased.tell(key, mode, step),
            Mode::Synced { .. } => {
                self.full.forget(key, step.now);
                self.synced.tell(key, mode, step);
            }
        }
    }

    async fn tick(&self, local: Micros) {
        join(self.leased.tick(local), self.synced.tick(local)).await;
    }

    async fn close(&self, local: Micros) {
        join(self.leased.close(local), self.synced.close(local)).await;
    }
}
