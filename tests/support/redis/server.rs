//! A single Redis: on a unix socket, and on a TCP port of loopback if it shall.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tempfile::TempDir;

use super::ports::Port;
use super::process::Process;
use super::resp::Client;
use crate::support::certificates::Certificates;

/// What the log says once connections are accepted; newer versions add over what.
const READY: &str = "eady to accept connections";

/// A running server with its own empty folder. It ends on drop.
pub(crate) struct Server {
    process: Process,
    folder: TempDir,
    arguments: Vec<String>,
    password: Option<String>,
    port: Port,
    _bus: Port,
}

impl Server {
    /// On a unix socket only.
    pub(crate) fn local() -> Server {
        Server::start(|_| 0, |_, _| Vec::new())
    }

    /// On a free port of loopback too, with these options: words as in `redis.conf`.
    pub(crate) fn listening(options: &[&str]) -> Server {
        Server::start(|port| port, |_, _| options.iter().map(|&word| word.to_owned()).collect())
    }

    /// On a free port that speaks TLS, and on none that does not. With `clients`, it wants to see
    /// their certificates.
    pub(crate) fn tls(certificates: &Certificates, clients: bool) -> Server {
        Server::start(|_| 0, |port, _| secured(certificates, clients, port))
    }

    /// One node of a cluster, which knows no other yet.
    pub(crate) fn node(options: &[&str]) -> Server {
        Server::start(|port| port, |_, bus| clustered(bus, options))
    }

    /// The same, where everybody speaks TLS and shows a certificate: clients and other nodes.
    pub(crate) fn tls_node(certificates: &Certificates, options: &[&str]) -> Server {
        let with_tls = |port: u16, bus: u16| {
            let tls = ["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned);
            let secured = secured(certificates, true, port);
            clustered(bus, options).into_iter().chain(secured).chain(tls).collect()
        };
        Server::start(|_| 0, with_tls)
    }

    /// `plain` makes the port without TLS from a free one, `options` the rest from two free ones.
    fn start(plain: impl Fn(u16) -> u16, options: impl Fn(u16, u16) -> Vec<String>) -> Server {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let path = folder.path().to_str().expect("a path in UTF-8").to_owned();
        let socket = format!("{path}/redis.sock");
        let (port, bus) = (Port::take(), Port::take());
        #[rustfmt::skip]
        let fixed = [
            "--bind", "127.0.0.1", "--port", &plain(port.number()).to_string(),
            "--unixsocket", &socket, "--dir", &path, "--save", "", "--appendonly", "no",
            "--daemonize", "no",
        ];
        let options = options(port.number(), bus.number());
        let password = options.iter().skip_while(|word| *word != "--requirepass").nth(1).cloned();
        let fixed = fixed.map(str::to_owned).into_iter();
        let arguments: Vec<String> = fixed.chain(options).collect();
        let process = Process::start(&arguments, READY)
            .unwrap_or_else(|log| panic!("redis-server does not start:\n{log}"));
        Server { process, folder, arguments, password, port, _bus: bus }
    }

    /// Its process, to freeze it or to read its log.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Where its unix socket is.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Where it listens, if it does.
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The port of it.
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// A new connection over the unix socket, logged in.
    pub(crate) fn client(&self) -> Client {
        self.try_client().expect("it accepts connections")
    }

    /// The same, of a server that may be dead.
    pub(crate) fn try_client(&self) -> io::Result<Client> {
        let mut client = Client::unix(&self.socket())?;
        if let Some(password) = &self.password {
            client.run(&["AUTH", password]);
        }
        Ok(client)
    }

    /// Script calls (EVALSHA) since the last `CONFIG RESETSTAT`.
    pub(crate) fn script_calls(&self) -> u64 {
        let stats = self.client().run(&["INFO", "commandstats"]).text();
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = line.map(|line| line.split(',').next().expect("a number"));
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }

    /// Ends it at once (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again where it was, with what its folder holds: nothing but a cluster's nodes.
    pub(crate) fn restart(&mut self) {
        self.process.kill();
        let started = Process::start(&self.arguments, READY);
        self.process = started.unwrap_or_else(|log| panic!("it does not start again:\n{log}"));
    }
}

/// The options of a port that speaks TLS.
fn secured(certificates: &Certificates, clients: bool, port: u16) -> Vec<String> {
    let path = |name: &str| certificates.path(name).display().to_string();
    let asks = if clients { "yes" } else { "no" };
    #[rustfmt::skip]
    let words = [
        "--tls-port", &port.to_string(), "--tls-auth-clients", asks,
        "--tls-cert-file", &path("server.crt"), "--tls-key-file", &path("server.key"),
        "--tls-ca-cert-file", &path("ca.crt"),
    ];
    words.map(str::to_owned).into()
}

/// The options of a node of a cluster, and more.
fn clustered(bus: u16, options: &[&str]) -> Vec<String> {
    let bus = bus.to_string();
    let words = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    words.iter().chain(options).map(|&word| word.to_owned()).collect()
}
