//! TLS on a port: whose certificate is shown, whom it trusts, and how both change while it serves.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

mod client_san;
mod der;
mod files;
mod rustls_config;
mod validity;

use files::Contents;

use super::metrics::ServerMetrics;
use crate::settings::{ClientCert, GrpcSettings};

/// What an operator says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate chain, PEM, the server's own first.
    pub cert: PathBuf,
    /// Its private key, PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
    /// Authorities whose clients are let in, PEM. None: everybody is.
    pub client_ca: Option<PathBuf>,
    /// With `client_ca`: clients without a certificate are let in too.
    pub client_optional: bool,
    /// With `client_ca`: names (DNS, or URIs such as `spiffe://..`) of which a client's certificate
    /// must have one. Empty: any.
    pub client_san: Vec<String>,
}

impl TlsConfig {
    /// TLS as in `settings`. None: plain text.
    ///
    /// # Errors
    /// A setting that needs another one. A missing line must not mean plain text, nor that every
    /// client may connect.
    pub fn from_settings(settings: &GrpcSettings) -> Result<Option<TlsConfig>, TlsError> {
        let error = |text: &str| Err(TlsError(text.to_owned()));
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

    /// Where they are, for whoever watches them.
    pub fn paths(&self) -> Vec<PathBuf> {
        let all = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()];
        all.into_iter().flatten().cloned().collect()
    }
}

/// Why the files cannot be used. Names the setting and the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// TLS of one port, shared by all its cores.
#[derive(Clone)]
pub struct TlsAcceptor(Arc<Inner>);

struct Inner {
    files: TlsConfig,
    config: ArcSwap<ServerConfig>,
    /// What was read last, good or bad.
    read: Mutex<Contents>,
    counters: Arc<ServerMetrics>,
}

/// What came of looking at the files again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// They hold what they held.
    Unchanged,
    /// New ones are in force; existing connections keep theirs. With what the operator should know.
    Reloaded(Vec<String>),
    /// The new ones are no good, and those before stay in force.
    Failed(TlsError),
}

impl TlsAcceptor {
    /// Reads the files. With what the operator should know about them. `now` is in seconds since
    /// 1970.
    pub fn load(
        files: TlsConfig,
        now: u64,
        counters: Arc<ServerMetrics>,
    ) -> Result<(TlsAcceptor, Vec<String>), TlsError> {
        let contents = Contents::read(&files)?;
        let config = rustls_config::build(&files, &contents)?;
        counters.tls_ends.set(config.ends);
        let warnings = config.warnings(&files, now);
        let shared = Inner {
            files,
            config: ArcSwap::new(config.rustls),
            read: Mutex::new(contents),
            counters,
        };
        Ok((TlsAcceptor(Arc::new(shared)), warnings))
    }

    /// Looks at the files again, and takes what is new and good.
    pub fn reload(&self, now: u64) -> ReloadOutcome {
        let this = &*self.0;
        let mut read = this.read.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that is being replaced may be missing for a moment; it is bad once.
        let contents = match Contents::read(&this.files) {
            Ok(contents) => contents,
            Err(_) if *read == Contents::default() => return ReloadOutcome::Unchanged,
            Err(error) => {
                *read = Contents::default();
                this.counters.tls_refused.add();
                return ReloadOutcome::Failed(error);
            }
        };
        if *read == contents {
            return ReloadOutcome::Unchanged;
        }
        let built = rustls_config::build(&this.files, &contents);
        *read = contents;
        match built {
            Ok(config) => {
                let warnings = config.warnings(&this.files, now);
                this.config.store(config.rustls);
                this.counters.tls_ends.set(config.ends);
                this.counters.tls_reloaded.add();
                ReloadOutcome::Reloaded(warnings)
            }
            Err(error) => {
                this.counters.tls_refused.add();
                ReloadOutcome::Failed(error)
            }
        }
    }

    /// Shakes hands. `places` bounds how many do at a time; a client that has not said anything yet
    /// takes none.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        places: &Semaphore,
    ) -> io::Result<TlsStream<TcpStream>> {
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let _place = places.acquire().await.map_err(io::Error::other)?;
        hello.into_stream(self.0.config.load_full()).await
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").field("files", &self.0.files).finish_non_exhaustive()
    }
}
