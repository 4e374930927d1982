//! TLS of the gRPC listener, and the watcher that reloads its certificate files.

use std::io;
use std::sync::Arc;

use super::StartError;
use super::watch::{self, Watcher};
use crate::server::{ReloadOutcome, ServerMetrics, TlsAcceptor, TlsConfig};
use crate::settings::Settings;
use crate::time::{Clock, SystemClock};

/// A watcher that reloads the certificate files when they change, until it is dropped.
#[derive(Debug)]
pub(super) struct CertificateWatcher {
    _watcher: Watcher,
}

impl CertificateWatcher {
    /// The TLS configuration from `grpc.tls_*`, and its watcher; `None` without a certificate.
    pub(super) fn load(
        settings: &Settings,
        metrics: &Arc<ServerMetrics>,
        clock: SystemClock,
    ) -> Result<Option<(TlsAcceptor, CertificateWatcher)>, StartError> {
        let bad = |error: String| StartError::Config(vec![error]);
        let Some(files) = TlsConfig::from_settings(&settings.grpc) else { return Ok(None) };
        let paths = files.paths();
        let known = watch::contents(&paths);
        let now = move || clock.now().0 / 1_000_000;
        let (tls, warning) = TlsAcceptor::load(files, now(), Arc::clone(metrics))
            .map_err(|error| bad(error.to_string()))?;
        warn(warning);
        let watcher = follow(tls.clone(), paths, known, now)?;
        Ok(Some((tls, CertificateWatcher { _watcher: watcher })))
    }
}

fn follow(
    tls: TlsAcceptor,
    paths: Vec<std::path::PathBuf>,
    known: watch::Digest,
    now: impl Fn() -> u64 + Send + 'static,
) -> io::Result<Watcher> {
    Watcher::of_files("weir-certificates", paths, known, move || match tls.reload(now()) {
        ReloadOutcome::Unchanged => {}
        ReloadOutcome::Reloaded(warning) => {
            tracing::info!("certificates reloaded: new connections use them");
            warn(warning);
        }
        ReloadOutcome::Failed(error) => {
            tracing::error!(%error, "certificates not reloaded: old ones stay");
        }
    })
}

fn warn(warning: Option<String>) {
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
}
