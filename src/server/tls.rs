//! TLS of the gRPC port: its files, the authorities of its clients, and their reload while it serves.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

mod client_san;
mod rustls_config;

use super::metrics::ServerMetrics;
use crate::settings::{ClientCert, GrpcSettings};
use crate::tls::{CertFiles, PemFile, ReloadOutcome, Reloadable, TlsError};
use rustls_config::ServedConfig;

/// The settings of TLS: `grpc.tls_*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate chain, PEM; the server's own certificate first.
    pub cert: PathBuf,
    /// The private key, PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
    /// Authorities of clients, PEM. `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// With `client_ca`: clients without a certificate are accepted too.
    pub client_optional: bool,
    /// With `client_ca`: DNS names, or URIs such as `spiffe://..`. A client's certificate must have one of them.
    /// Empty: any name.
    pub client_san: Vec<String>,
}

impl TlsConfig {
    /// TLS as in `settings`; `None` for plain text.
    ///
    /// # Errors
    ///
    /// A setting that needs another one. A missing line must neither mean plain text nor let every client connect.
    pub fn from_settings(settings: &GrpcSettings) -> Result<Option<TlsConfig>, TlsError> {
        let error = |text: &str| Err(TlsError::new(text));
        let names = settings.tls_client_san.split(',').map(str::trim);
        let client_san: Vec<String> =
            names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if settings.tls_client_ca.is_none() && !client_san.is_empty() {
            return error("grpc.tls_client_san needs grpc.tls_client_ca; set both or none");
        }
        match (&settings.tls_cert, &settings.tls_key) {
            (Some(cert), Some(key)) => Ok(Some(TlsConfig {
                cert: cert.clone(),
                key: key.clone(),
                client_ca: settings.tls_client_ca.clone(),
                client_optional: settings.tls_client_cert == ClientCert::Optional,
                client_san,
            })),
            (None, None) if settings.tls_client_ca.is_none() => Ok(None),
            (None, None) => {
                error("grpc.tls_client_ca needs grpc.tls_cert and grpc.tls_key; set them")
            }
            _ => error("grpc.tls_cert and grpc.tls_key go together; set both or none"),
        }
    }

    /// The paths of the files, to watch them.
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
    /// Reads the files. Also returns a warning about the certificate's dates at `now`, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// Files that cannot be used, and names that are neither DNS names nor URIs.
    pub fn load(
        config: TlsConfig,
        now: u64,
        metrics: Arc<ServerMetrics>,
    ) -> Result<(TlsAcceptor, Option<String>), TlsError> {
        let served =
            Reloadable::load(config.files(), move |parsed| rustls_config::build(&config, parsed))?;
        let first = served.current();
        metrics.tls_ends.set(first.identity.validity.ends);
        let warning = first.identity.warning(now);
        Ok((TlsAcceptor(Arc::new(Inner { served, metrics })), warning))
    }

    /// Reads the files again. If they have changed and are valid, new connections use them; existing connections
    /// keep theirs. Returns a warning as [`TlsAcceptor::load`] does.
    pub fn reload(&self, now: u64) -> ReloadOutcome<Option<String>> {
        let Inner { served, metrics } = &*self.0;
        match served.reload() {
            ReloadOutcome::Unchanged => ReloadOutcome::Unchanged,
            ReloadOutcome::Reloaded(served) => {
                metrics.tls_ends.set(served.identity.validity.ends);
                metrics.tls_reloaded.add();
                ReloadOutcome::Reloaded(served.identity.warning(now))
            }
            ReloadOutcome::Failed(error) => {
                metrics.tls_refused.add();
                ReloadOutcome::Failed(error)
            }
        }
    }

    /// Does the handshake. `permits` bounds the handshakes at a time; a client takes a permit only once it has sent
    /// its hello, so silent clients hold none.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        permits: &Semaphore,
    ) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let _permit = permits.acquire().await.map_err(io::Error::other)?;
        hello.into_stream(Arc::clone(&self.0.served.current().rustls)).await
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").field("served", &self.0.served).finish_non_exhaustive()
    }
}
