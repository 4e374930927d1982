//! The thread of the client: connects, passes responses on, answers them, and connects again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::cache::Cache;
use super::session::XdsSession;
use super::status::{FirstRules, XdsStatus};
use super::{RulesByXds, XdsError};
use crate::backoff::Backoff;
use crate::outage_log::OutageLog;
use crate::settings::XdsSettings;
use crate::thread_priority;
use crate::time::{Clock, SystemClock};
use crate::tls::TlsError;

mod cached_rules;
mod response_codec;
mod stream;
mod updates;

use stream::{EndedStream, Server};
use updates::Updates;

/// Time without any rules on an open stream after which the log has a line, in connect timeouts.
const SILENT_TIMEOUTS: u32 = 3;

/// Interval of reading the files of TLS again while a stream is open.
const CERTIFICATES_INTERVAL: Duration = Duration::from_secs(60);

/// The running client. It stops when this value is dropped.
#[derive(Debug)]
pub struct XdsClient {
    status: Arc<XdsStatus>,
    _stop: oneshot::Sender<()>,
}

impl XdsClient {
    /// What the client has received so far.
    pub fn status(&self) -> &Arc<XdsStatus> {
        &self.status
    }
}

/// Applies the cache, if there is one, and starts the client. `None` without `rules.xds.server`.
///
/// # Errors
/// Invalid files of TLS, or no thread.
pub fn start(
    settings: &XdsSettings,
    rules: Arc<dyn RulesByXds>,
    clock: SystemClock,
) -> Result<Option<XdsClient>, XdsError> {
    let Some(server) = Server::new(settings, clock)? else { return Ok(None) };
    let status = Arc::new(XdsStatus::default());
    server.read_certificates(&status);
    let runtime = Builder::new_current_thread()
        .enable_all()
        // The threads of `spawn_blocking`, which compile rules.
        .on_thread_start(thread_priority::lower)
        .build()?;
    let cache_updates = settings.cache_file.as_ref().map(|path| {
        let address = settings.server.as_deref().unwrap_or_default();
        let cache = Cache::new(path, address, &settings.node_id, settings.max_message_bytes);
        cached_rules::apply(&cache, &*rules, &status);
        let (cache_updates, seen) = watch::channel(None);
        runtime.spawn(cached_rules::keep(cache, rules.clone(), status.clone(), seen));
        cache_updates
    });
    let client_loop = ClientLoop {
        server,
        session: XdsSession::default(),
        updates: Updates::new(rules, status.clone(), clock, cache_updates),
        status: status.clone(),
        backoff: Backoff::new(settings.backoff_initial, settings.backoff_max),
        silence: settings.connect_timeout.saturating_mul(SILENT_TIMEOUTS),
        is_silence_logged: false,
        log: OutageLog::default(),
        clock,
    };
    let (stop, stopped) = oneshot::channel();
    thread::Builder::new().name("weir-xds".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = client_loop.run() => {}
                _ = stopped => {}
            }
        });
        // Not waited for: an update that is being applied must not delay the end of the process.
        runtime.shutdown_background();
    })?;
    Ok(Some(XdsClient { status, _stop: stop }))
}

/// Loads the files of TLS that `settings` name, as [`start`] does.
///
/// # Errors
/// Files that cannot be read or used.
pub fn check_files(settings: &XdsSettings, clock: SystemClock) -> Result<(), TlsError> {
    Server::new(settings, clock).map(drop)
}

/// The state of the thread.
struct ClientLoop {
    server: Server,
    session: XdsSession,
    updates: Updates,
    status: Arc<XdsStatus>,
    backoff: Backoff,
    /// Time without any rules on an open stream after which the log has a line, once.
    silence: Duration,
    is_silence_logged: bool,
    log: OutageLog,
    clock: SystemClock,
}

impl ClientLoop {
    /// Runs one stream after the other, without end.
    async fn run(mut self) {
        loop {
            let EndedStream { reason, error, delivered } = self.stream().await;
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
    async fn stream(&mut self) -> EndedStream {
        let ClientLoop {
            server, session, updates, status, silence, is_silence_logged, log, ..
        } = self;
        let (server, status) = (&*server, &**status);
        let mut up = || {
            if log.up() {
                tracing::info!("xDS server sends rules again");
            }
        };
        let mut stream = pin!(stream::run(server, session, updates, status, &mut up));
        let mut silence = pin!(sleep(*silence));
        loop {
            tokio::select! {
                ended = &mut stream => return ended,
                // Longer than the connect timeout, so the server is connected.
                () = &mut silence, if !*is_silence_logged => {
                    *is_silence_logged = true;
                    // Rules of the cache hide that the server sends none.
                    if status.first_rules() == FirstRules::Missing || status.is_from_cache() {
                        tracing::warn!("xDS server is silent: check rules.xds.node_id");
                    }
                }
                () = sleep(CERTIFICATES_INTERVAL) => server.read_certificates(status),
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
