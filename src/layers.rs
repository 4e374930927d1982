//! Layers: how often a decision visits the store, one module per way, composed here and nowhere
//! else.
//!
//! ```text
//! over-limit cache -> exact  -> store
//!                  -> leased -> store
//!                     synced -> store
//! ```
//!
//! A layer answers what it can tell without the store, and asks the next one for the rest. Each has
//! the same trait, so that what stands above one does not know what stands below it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::Decision;
use crate::key::Key;
use crate::limit::{Limit, Mode};
use crate::step::{Lease, Step};
use crate::store::{Store, StoreError};
use crate::time::Micros;

mod exact;
mod leased;
mod over_limit;
mod synced;

pub use leased::LeaseCounts;

use exact::Exact;
use leased::Leased;
use over_limit::OverLimit;
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
    /// The instant of the request, by our own clock.
    pub local: Micros,
    /// The same instant by the clock of the store, if that can be told.
    pub now: Result<Micros, StoreError>,
    /// How long the caller will wait.
    pub patience: Option<Duration>,
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

/// The layers around a store.
pub enum Layers<S> {
    /// A store of this process alone: it answers at once, so nothing stands before it.
    Own(Exact<S>),
    /// A store that instances share.
    Shared(OverLimit<Modes<S>>),
}

/// One layer per mode; the rule's mode chooses.
pub struct Modes<S> {
    exact: Exact<S>,
    leased: Leased<S>,
    synced: Synced<S>,
}

impl<S: Store> Layers<S> {
    /// For a store that only this process counts in.
    pub fn own(store: S) -> Layers<S> {
        Layers::Own(Exact::new(Arc::new(store)))
    }

    /// For a store that instances share.
    pub fn shared(store: S) -> Layers<S> {
        let store = Arc::new(store);
        Layers::Shared(OverLimit::new(Modes {
            exact: Exact::new(store.clone()),
            leased: Leased::new(store.clone()),
            synced: Synced::new(store),
        }))
    }

    /// The store behind them.
    pub fn store(&self) -> &S {
        match self {
            Layers::Own(exact) => exact.store(),
            Layers::Shared(over_limit) => over_limit.inner().exact.store(),
        }
    }

    /// The layers between, where there are any, for metrics.
    pub fn between(&self) -> Option<&OverLimit<Modes<S>>> {
        match self {
            Layers::Own(_) => None,
            Layers::Shared(over_limit) => Some(over_limit),
        }
    }
}

impl<S> Modes<S> {
    /// The layer of leased rules.
    pub fn leased(&self) -> &Leased<S> {
        &self.leased
    }

    /// The layer of synced rules.
    pub fn synced(&self) -> &Synced<S> {
        &self.synced
    }
}

impl<S: Store> Layer for Layers<S> {
    async fn ask(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        match self {
            Layers::Own(exact) => exact.ask(ask).await,
            // Apart, so that decisions from memory do not carry the room for it along.
            Layers::Shared(layers) => Box::pin(layers.ask(ask)).await,
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
            Mode::Exact => self.exact.ask(ask).await,
            Mode::Leased => self.leased.ask(ask).await,
            Mode::Synced { .. } => self.synced.ask(ask).await,
        }
    }

    fn tell(&self, key: &Key, mode: Mode, step: Step) {
        match mode {
            Mode::Exact => self.exact.tell(key, mode, step),
            Mode::Leased => self.leased.tell(key, mode, step),
            Mode::Synced { .. } => self.synced.tell(key, mode, step),
        }
    }

    async fn tick(&self, local: Micros) {
        self.leased.tick(local).await;
        self.synced.tick(local).await;
    }

    async fn close(&self, local: Micros) {
        self.leased.close(local).await;
        self.synced.close(local).await;
    }
}
