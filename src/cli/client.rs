//! The connection of a command to the gRPC port of a service. Its errors name the flag to change.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// The service to call.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// Address of the service's gRPC listener.
    #[arg(long, default_value = "127.0.0.1:8081", value_parser = grpc_address)]
    addr: String,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The connection to a service.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// Longest wait for the response, in milliseconds.
    #[arg(long, default_value_t = 1_000, value_name = "MS")]
    timeout: u64,
    #[command(flatten)]
    tls: TlsArgs,
}

/// TLS of the call.
#[derive(Debug, Args)]
struct TlsArgs {
    /// Use TLS; any of the flags below implies it.
    #[arg(long)]
    tls: bool,
    /// Certificates of the trusted authorities [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Certificate chain of the client, for a service that requires one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the client's certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name that the service's certificate must have [default: the host of --addr]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

/// `text` as `host:port`. The scheme is chosen by the flags of TLS.
pub(super) fn grpc_address(text: &str) -> Result<String, String> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let tls = if scheme == "https" { " and --tls" } else { "" };
        return Err(format!("write {}{tls}, without {scheme}://", rest.trim_end_matches('/')));
    }
    match text.parse::<http::uri::Authority>() {
        Ok(address) if address.port_u16().is_some() && !address.host().is_empty() => {
            Ok(text.to_owned())
        }
        _ => Err("this is not host:port; write one such as 127.0.0.1:8081".to_owned()),
    }
}

impl ServiceArgs {
    /// Connects to the service, and runs `call` on the connection.
    ///
    /// # Errors
    ///
    /// See [`ConnectionArgs::call`].
    pub(super) async fn call<T, F>(&self, call: impl FnOnce(Channel) -> F) -> anyhow::Result<T>
    where
        F: Future<Output = tonic::Result<T>>,
    {
        self.connection.call(&self.addr, call).await
    }
}

impl ConnectionArgs {
    /// The longest wait for the response.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout)
    }

    /// Whether a flag of TLS is used.
    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_used()
    }

    /// Connects to the service at `addr` (`host:port`), and runs `call` on the connection.
    ///
    /// # Errors
    ///
    /// No response of the service within `--timeout`, or an error status. The text says what to do.
    pub(super) async fn call<T, F>(
        &self,
        addr: &str,
        call: impl FnOnce(Channel) -> F,
    ) -> anyhow::Result<T>
    where
        F: Future<Output = tonic::Result<T>>,
    {
        let tls = self.tls.config()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{addr}"))
            .with_context(|| format!("--addr {addr} is not host:port"))?;
        let endpoint = match tls {
            Some(tls) => {
                endpoint.tls_config(tls).context("TLS with these files is not possible")?
            }
            None => endpoint,
        };
        let calling = async {
            let connected = endpoint.connect().await;
            let channel = connected.map_err(|error| self.not_connected(addr, &error))?;
            call(channel).await.map_err(|status| self.not_answered(addr, &status))
        };
        tokio::time::timeout(self.timeout(), calling).await.with_context(|| {
            let timeout = self.timeout;
            format!(
                "no answer from {addr} within {timeout} ms; name the gRPC port, or raise --timeout"
            )
        })?
    }

    fn not_connected(&self, addr: &str, error: &tonic::transport::Error) -> anyhow::Error {
        let cause = chain(error);
        // The texts of the connector for errors before the handshake of TLS.
        if ["tcp ", "dns error"].iter().any(|before| cause.contains(*before)) {
            let hint = if self.tls.is_used() { "with TLS" } else { "without TLS (--tls)" };
            return anyhow!(
                "no service answers at {addr} {hint}; is `weir serve` running there?: {cause}"
            );
        }
        anyhow!("{addr}: {} ({cause})", self.tls.advice(&cause))
    }

    fn not_answered(&self, addr: &str, status: &Status) -> anyhow::Error {
        match status.source() {
            // A status from the service has no source. The others report a broken connection.
            Some(source) if !is_http2(source) => {
                let cause = chain(source);
                anyhow!("{addr}: {} ({cause})", self.tls.advice(&cause))
            }
            _ => anyhow!("{:?}: {}", status.code(), status.message()),
        }
    }
}

impl TlsArgs {
    fn is_used(&self) -> bool {
        let TlsArgs { tls, ca, cert, key: _, server_name } = self;
        *tls || ca.is_some() || cert.is_some() || server_name.is_some()
    }

    /// The TLS configuration; `None` without a flag of TLS.
    fn config(&self) -> anyhow::Result<Option<ClientTlsConfig>> {
        if !self.is_used() {
            return Ok(None);
        }
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| path.display().to_string());
        let mut config = match &self.ca {
            Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        Ok(Some(config))
    }

    /// What to do after `cause` broke a connection that was open.
    fn advice(&self, cause: &str) -> &'static str {
        if !self.is_used() {
            return "this port does not answer gRPC without TLS; name the gRPC port (grpc.listen, \
                    8081 by default), or use --tls if that port requires TLS";
        }
        match TLS_ADVICE.iter().find(|(part, _)| cause.contains(*part)) {
            Some((_, advice)) => advice,
            None if self.cert.is_none() => {
                "the TLS connection broke; leave out the flags of TLS if the port does not use it, \
                 or use --cert and --key if the service requires a certificate of the client"
            }
            None => "the TLS connection broke; check --cert and --key, and the log of the service",
        }
    }
}

const NO_TLS: &str = "this port does not use TLS; leave out the flags of TLS, or name another port";

const OWN_CERTIFICATE: &str =
    "the service does not accept the client's certificate; check --cert and grpc.tls_client_ca";

/// Parts of the errors of TLS, and what to do about each.
const TLS_ADVICE: &[(&str, &str)] = &[
    (
        "UnknownIssuer",
        "the authority of the service's certificate is not trusted; name it with --ca",
    ),
    (
        "not valid for name",
        "the service's certificate has another name; give that name with --server-name",
    ),
    (
        "alert: CertificateRequired",
        "the service requires a certificate of the client; use --cert and --key",
    ),
    ("alert: UnknownCA", OWN_CERTIFICATE),
    ("alert: BadCertificate", OWN_CERTIFICATE),
    ("alert: AccessDenied", OWN_CERTIFICATE),
    ("corrupt message", NO_TLS),
    ("handshake eof", NO_TLS),
    ("not negotiated", "this port uses TLS, but not HTTP/2; name the gRPC port (grpc.listen)"),
];

/// `error` and the errors that caused it.
fn sources<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Whether the peer answered with a frame of HTTP/2, so that the address is right.
fn is_http2(error: &(dyn Error + 'static)) -> bool {
    let mut causes = sources(error);
    causes.any(|cause| cause.downcast_ref::<h2::Error>().is_some_and(h2::Error::is_remote))
}

/// The texts of an error and of its sources.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = sources(error).map(|cause| cause.to_string()).collect();
    texts.dedup();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_and_no_scheme() {
        for address in ["127.0.0.1:8081", "[::1]:8081", "weir.example.org:1"] {
            assert_eq!(grpc_address(address).as_deref(), Ok(address));
        }
        for (text, fix) in [
            ("http://h:1", "write h:1, without http://"),
            ("http://h:1/", "write h:1, without http://"),
            ("https://h:1", "write h:1 and --tls, without https://"),
            ("localhost", "127.0.0.1:8081"),
            (":8081", "127.0.0.1:8081"),
            ("h:port", "127.0.0.1:8081"),
            ("", "127.0.0.1:8081"),
        ] {
            assert!(grpc_address(text).is_err_and(|error| error.contains(fix)), "{text}");
        }
    }

    #[test]
    fn errors_of_tls_name_the_flag_to_use() {
        let plain = TlsArgs { tls: false, ca: None, cert: None, key: None, server_name: None };
        assert!(plain.advice("broken pipe").contains("--tls"));
        let own = PathBuf::from("own.crt");
        let with_cert = TlsArgs { cert: Some(own.clone()), key: Some(own), ..plain };
        let without = TlsArgs { tls: true, ca: None, cert: None, key: None, server_name: None };
        for (cause, flag) in [
            ("invalid peer certificate: UnknownIssuer", "--ca"),
            ("invalid peer certificate: certificate not valid for name \"x\"", "--server-name"),
            ("received fatal alert: CertificateRequired", "--cert"),
            ("received corrupt message of type InvalidContentType", "leave out"),
            ("Connection reset by peer", "requires a certificate"),
        ] {
            assert!(without.advice(cause).contains(flag), "{cause}");
        }
        assert!(!with_cert.advice("Connection reset by peer").contains("requires"));
    }
}
