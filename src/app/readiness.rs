//! Readiness: what health says of this process, and whether it follows the store.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::service::Service;
use crate::server::Health;
use crate::settings::{ReadyzSettings, RequireRules};

/// How often the store is looked at: far more often than anybody asks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tells how the process is, until it is dropped.
#[derive(Debug)]
pub(super) struct Readiness {
    /// Held so that what health says stays known.
    _health: Arc<watch::Sender<Health>>,
    _alive: mpsc::Sender<()>,
}

impl Readiness {
    /// Ready at once, as the fallback answers where the store does not; or, where the operator wants
    /// that, whenever the store can be reached and there are rules.
    pub(super) fn start(service: Arc<Service>) -> io::Result<(Readiness, watch::Receiver<Health>)> {
        let ReadyzSettings { require_store, require_rules } = service.settings.readyz;
        let ready = move |service: &Service| {
            (!require_store || service.is_store_reachable()) && has_rules(service, require_rules)
        };
        let (health, seen) = watch::channel(Health { live: true, ready: ready(&service) });
        let health = Arc::new(health);
        let (alive, ended) = mpsc::channel();
        if require_store || require_rules != RequireRules::Off {
            let health = health.clone();
            thread::Builder::new().name("weir-readiness".into()).spawn(move || {
                while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    let now = Health { live: true, ready: ready(&service) };
                    health.send_if_modified(|known| std::mem::replace(known, now) != now);
                }
            })?;
        }
        Ok((Readiness { _health: health, _alive: alive }, seen))
    }
}

fn has_rules(service: &Service, required: RequireRules) -> bool {
    let any = || !service.active.load().rules.domains().is_empty();
    match required {
        RequireRules::Off => true,
        RequireRules::Loaded => any(),
        RequireRules::Current => any() && service.reloads.last_error.load().is_none(),
    }
}
