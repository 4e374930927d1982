//! `weir health`: asks a running service whether it serves, for health checks of containers without
//! a shell.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::admin_client::parse;
use super::client::{ConnectionArgs, grpc_address};
use super::{exit, say, say_error};
use crate::proto::grpc::health::v1::HealthCheckRequest;
use crate::proto::grpc::health::v1::health_check_response::ServingStatus;
use crate::proto::grpc::health::v1::health_client::HealthClient;
use crate::settings::{self, Flags, Problems};

/// Most bytes that are read of the response of `/readyz`.
const READYZ_MAX: u64 = 16 * 1024;

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Name whose health is asked for; empty for the whole server.
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Address of the service's gRPC listener [default: that of the settings, on this machine]
    #[arg(long, value_parser = grpc_address)]
    addr: Option<String>,
    /// Settings file of the service on this machine [default: the environment alone]
    #[arg(long, value_name = "FILE", conflicts_with = "addr")]
    config: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The port that is asked.
enum HealthPort {
    /// gRPC health at `host:port`.
    Grpc(String),
    /// `/readyz`, which has the same state, without TLS.
    Http(SocketAddr),
}

/// Asks for the health. Returns the exit code: 0 for SERVING, 1 for any other status, 64 for
/// invalid settings, 69 without a response.
pub(super) fn run(args: &HealthArgs) -> anyhow::Result<u8> {
    let port = match args.port() {
        Ok(port) => port,
        Err(problems) => {
            say(format_args!("{problems}"));
            return Ok(exit::BAD_CONFIG);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(async {
        match port {
            HealthPort::Grpc(address) => args.check(&address).await,
            HealthPort::Http(address) => args.readyz(address).await,
        }
    });
    match status {
        Ok(status) => {
            writeln!(std::io::stdout().lock(), "{}", status.as_str_name())?;
            Ok(if status == ServingStatus::Serving { 0 } else { exit::NEGATIVE })
        }
        Err(error) => {
            say_error(&error);
            Ok(exit::UNAVAILABLE)
        }
    }
}

impl HealthArgs {
    /// The port of `--addr`, or that of the settings of `weir serve` without its flags.
    ///
    /// The settings of a listener with TLS name neither its authority nor a certificate of a
    /// client. Without flags of TLS, `/readyz` of the HTTP port is asked instead.
    ///
    /// # Errors
    ///
    /// All problems of the settings.
    fn port(&self) -> Result<HealthPort, Problems> {
        if let Some(addr) = &self.addr {
            return Ok(HealthPort::Grpc(addr.clone()));
        }
        let flags = Flags { config: self.config.clone(), ..Flags::default() };
        let (env, _) = settings::without_host(settings::process_env());
        let settings = settings::load(&flags, &env)?.settings;
        if settings.grpc.tls_cert.is_some() && !self.connection.has_tls() {
            return Ok(HealthPort::Http(on_this_machine(settings.http.listen)));
        }
        Ok(HealthPort::Grpc(on_this_machine(settings.grpc.listen).to_string()))
    }

    /// Calls `grpc.health.v1.Health/Check` at `address`.
    async fn check(&self, address: &str) -> anyhow::Result<ServingStatus> {
        let request = HealthCheckRequest { service: self.name.clone() };
        let response = self
            .connection
            .call(address, |channel| async move { HealthClient::new(channel).check(request).await })
            .await?;
        Ok(response.into_inner().status())
    }

    /// Calls `/readyz` at `address`.
    async fn readyz(&self, address: SocketAddr) -> anyhow::Result<ServingStatus> {
        let advice = "is `weir serve` running there with this http.listen?";
        let answer = tokio::time::timeout(self.connection.timeout(), get_readyz(address)).await;
        let response = answer
            .with_context(|| format!("no answer from http://{address}/readyz in time; {advice}"))?
            .with_context(|| format!("no answer from http://{address}/readyz; {advice}"))?;
        match parse(&response) {
            Some((200, _)) => Ok(ServingStatus::Serving),
            Some((503, _)) => Ok(ServingStatus::NotServing),
            _ => Err(anyhow!("this is not weir's http://{address}/readyz; {advice}")),
        }
    }
}

/// The response to `GET /readyz`. HTTP/1.0 ends it with the connection.
async fn get_readyz(address: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(READYZ_MAX).read_to_end(&mut response).await?;
    Ok(response)
}

/// An address to connect to for the listener at `listen`. A listener of all addresses, also of IPv6,
/// has 127.0.0.1.
fn on_this_machine(listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() {
        return SocketAddr::from((Ipv4Addr::LOCALHOST, listen.port()));
    }
    listen
}
