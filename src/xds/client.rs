//! The thread of the client: connects, passes responses on, answers them, and connects again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::backoff::Backoff;
use super::cache::Cache;
use super::session::Session;
use super::status::{FirstRules, XdsStatus};
use super::{Apply, XdsError};
use crate::outage_log::OutageLog;
use crate::settings::XdsSettings;
use crate::time::{Clock, SystemClock};
use crate::tls::TlsError;

mod stream;
mod updates;

use stream::{Ended, Server};
use updates::Updates;

/// Time without any rules on an open stream after which the log has a line.
const SILENCE: Duration = Duration::from_secs(30);

/// The running client. It stops when this value is dropped.
#[derive(Debug)]
pub struct Client {
    status: Arc<XdsStatus>,
    _stop: oneshot::Sender<()>,
}

impl Client {
    /// What the client has received so far.
    pub fn status(&self) -> &Arc<XdsStatus> {
        &self.status
    }
}

/// Applies the cache, if there is one, and starts the client. `None` without `rules.xds.server`.
/// `apply` is called by one thread at a time.
///
/// # Errors
/// Invalid files of TLS, or no thread.
pub fn start(
    settings: &XdsSettings,
    apply: Apply,
    clock: SystemClock,
) -> Result<Option<Client>, XdsError> {
    let Some(server) = Server::new(settings, clock)? else { return Ok(None) };
    let status = Arc::new(XdsStatus::default());
    let cache = settings.cache_file.as_ref();
    let cache = cache.map(|path| Cache::new(path, settings.max_message_bytes));
    let updates = Updates::new(apply, cache, status.clone(), clock);
    updates.apply_cache();
    let worker = Worker {
        server,
        session: Session::default(),
        updates,
        status: status.clone(),
        backoff: Backoff::new(settings.backoff_initial, settings.backoff_max),
        log: OutageLog::default(),
        clock,
    };
    let (stop, stopped) = oneshot::channel();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("weir-xds".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = worker.run() => {}
                _ = stopped => {}
            }
        });
        // Not waited for: an update that is being applied must not delay the end of the process.
        runtime.shutdown_background();
    })?;
    Ok(Some(Client { status, _stop: stop }))
}

/// Loads the files of TLS that `settings` name, as [`start`] does.
///
/// # Errors
/// Files that cannot be read or used.
pub fn check_files(settings: &XdsSettings, clock: SystemClock) -> Result<(), TlsError> {
    Server::new(settings, clock).map(drop)
}

/// The state of the thread.
struct Worker {
    server: Server,
    session: Session,
    updates: Updates,
    status: Arc<XdsStatus>,
    backoff: Backoff,
    log: OutageLog,
    clock: SystemClock,
}

impl Worker {
    /// Runs one stream after the other, without end.
    async fn run(mut self) {
        let mut silence_logged = false;
        loop {
            let Ended { reason, error, delivered } = self.stream(&mut silence_logged).await;
            self.status.ended(reason);
            if delivered {
                self.backoff.reset();
            }
            // A new `RandomState` is the standard library's only source of random numbers.
            let pause = self.backoff.pause(RandomState::new().build_hasher().finish());
            if self.log.down(&error, self.clock.now()) {
                tracing::warn!(error, "no stream from the xDS server: the active rules stay");
            }
            sleep(pause).await;
        }
    }

    /// Runs one stream to its end.
    async fn stream(&mut self, silence_logged: &mut bool) -> Ended {
        let status = self.status.clone();
        let Worker { server, session, updates, log, .. } = self;
        let mut up = || {
            if log.up() {
                tracing::info!("xDS server sends rules again");
            }
        };
        let mut stream = pin!(stream::run(server, session, updates, &status, &mut up));
        let mut silence = pin!(sleep(SILENCE));
        loop {
            tokio::select! {
                ended = &mut stream => return ended,
                () = &mut silence, if !*silence_logged => {
                    *silence_logged = true;
                    if status.is_connected() && status.first_rules() == FirstRules::Missing {
                        tracing::warn!("xDS server is silent: check rules.xds.node_id");
                    }
                }
            }
        }
    }
}

/// The text of an error's deepest cause, which names what failed.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
