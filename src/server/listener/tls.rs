//! TLS of the gRPC port: certificate files, client authorities, and their reload while it serves.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

mod client_san;
#[cfg(feature = "fuzz")]
pub mod fuzz_harness;
mod handshake_throttle;
mod rustls_config;

use crate::server::metrics::ServerMetrics;
use crate::settings::{ClientCert, GrpcSettings};
use crate::tls::{CertFiles, PemFile, ReloadOutcome, Reloadable, SanName, TlsError};
use rustls_config::ServedConfig;

/// The settings of TLS: `grpc.tls_*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate chain as PEM, with the server's certificate first.
    pub cert: PathBuf,
    /// The private key as PEM, in PKCS#8, PKCS#1 or SEC1 form.
    pub key: PathBuf,
    /// Authorities that sign client certificates, as PEM; `None` if clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether clients without a certificate are accepted too. Needs `client_ca`.
    pub client_optional: bool,
    /// Accepted names of client certificates. A certificate must have one of them; an empty list
    /// accepts any name. Needs `client_ca`.
    pub client_san: Vec<SanName>,
}

impl TlsConfig {
    /// The TLS settings in `settings`, which were checked; `None` for plain text.
    pub fn from_settings(settings: &GrpcSettings) -> Option<TlsConfig> {
        Some(TlsConfig {
            cert: settings.tls_cert.clone()?,
            key: settings.tls_key.clone()?,
            client_ca: settings.tls_client_ca.clone(),
            client_optional: settings.tls_client_cert == ClientCert::Optional,
            client_san: settings.tls_client_san.clone(),
        })
    }

    /// The paths of the files, for a file watcher.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files().paths()
    }

    fn files(&self) -> CertFiles {
        let cert = PemFile::new("grpc.tls_cert", &self.cert);
        let key = PemFile::new("grpc.tls_key", &self.key);
        let authorities = self.client_ca.as_ref();
        CertFiles {
            authorities: authorities.map(|path| PemFile::new("grpc.tls_client_ca", path)),
            identity: Some((cert, key)),
        }
    }
}

/// TLS of one port, shared by all its worker threads.
#[derive(Clone)]
pub struct TlsAcceptor(Arc<Inner>);

struct Inner {
    served: Reloadable<ServedConfig>,
    metrics: Arc<ServerMetrics>,
}

impl TlsAcceptor {
    /// Reads the files. Also returns a warning if the certificate is not valid at `now` or expires
    /// soon. `now` is in seconds since 1970.
    ///
    /// # Errors
    ///
    /// Invalid files.
    pub fn load(
        config: TlsConfig,
        now: u64,
        metrics: Arc<ServerMetrics>,
    ) -> Result<(TlsAcceptor, Option<String>), TlsError> {
        let served =
            Reloadable::load(config.files(), move |parsed| rustls_config::build(&config, parsed))?;
        let first = served.current();
        metrics.tls_expiry.set(first.identity.validity.ends);
        let warning = first.identity.warning(now);
        Ok((TlsAcceptor(Arc::new(Inner { served, metrics })), warning))
    }

    /// Reads the files again. If they have changed and are valid, new connections use them.
    /// Existing connections keep the old ones. Returns a warning as [`TlsAcceptor::load`] does.
    pub fn reload(&self, now: u64) -> ReloadOutcome<Option<String>> {
        let Inner { served, metrics } = &*self.0;
        match served.reload() {
            ReloadOutcome::Unchanged => ReloadOutcome::Unchanged,
            ReloadOutcome::Reloaded(served) => {
                metrics.tls_expiry.set(served.identity.validity.ends);
                metrics.tls_reloaded.add();
                ReloadOutcome::Reloaded(served.identity.warning(now))
            }
            ReloadOutcome::Failed(error) => {
                metrics.tls_reload_failed.add();
                ReloadOutcome::Failed(error)
            }
        }
    }

    /// Performs the handshake. Each poll of it takes one of `permits` for one round of the worker. A
    /// handshake that waits for its client holds none.
    pub(in crate::server) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        permits: &Arc<Semaphore>,
    ) -> io::Result<TlsStream<S>> {
        // Without a permit: this only parses, and silent clients must not take permits.
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        // `into_stream` itself computes the first flight, so it needs a permit too.
        let handshake =
            async { hello.into_stream(Arc::clone(&self.0.served.current().rustls)).await };
        handshake_throttle::throttled(handshake, permits).await
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").field("served", &self.0.served).finish_non_exhaustive()
    }
}
