//! A single Redis server on a unix socket and, optionally on a TCP port of loopback.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tempfile::TempDir;

use super::ports::Port;
use super::process::Process;
use super::resp::Client;
use crate::support::certificates::Certificates;

/// Part of the log line that reports readiness. Newer versions append to it.
const READY: &str = "eady to accept connections";

/// A running server with an empty folder. It is killed on drop.
pub(crate) struct Server {
    process: Process,
    folder: TempDir,
    arguments: Vec<String>,
    password: Option<String>,
    port: Port,
    _bus: Port,
}

impl Server {
    /// Listens on a unix socket only.
    pub(crate) fn local() -> Server {
        Server::start(|_| 0, |_, _| Vec::new())
    }

    /// Listens on a free port of loopback too. `options` are words as in `redis.conf`.
    pub(crate) fn listening(options: &[&str]) -> Server {
        Server::start(|port| port, |_, _| options.iter().map(|&word| word.to_owned()).collect())
    }

    /// Listens with TLS only. With `clients`, it requires client certificates.
    pub(crate) fn tls(certificates: &Certificates, clients: bool) -> Server {
        Server::start(|_| 0, |port, _| secured(certificates, clients, port))
    }

    /// One cluster node that is not connected to other nodes yet.
    pub(crate) fn node(options: &[&str]) -> Server {
        Server::start(|port| port, |_, bus| clustered(bus, options))
    }

    /// One cluster node with TLS that is not connected to other nodes yet. Clients and other nodes
    /// must present a certificate.
    pub(crate) fn tls_node(certificates: &Certificates, options: &[&str]) -> Server {
        let with_tls = |port: u16, bus: u16| {
            let tls = ["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned);
            let secured = secured(certificates, true, port);
            clustered(bus, options).into_iter().chain(secured).chain(tls).collect()
        };
        Server::start(|_| 0, with_tls)
    }

    /// `plain` maps the free port to the port without TLS (0: none). `options` gets the free port
    /// and the port of the cluster bus.
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

    /// The server's process, for signals and log lines.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// The path of the server's unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The server's TCP address, if it listens on TCP.
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The server's TCP port.
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// A new authenticated connection over the unix socket.
    pub(crate) fn client(&self) -> Client {
        self.try_client().expect("it accepts connections")
    }

    /// A new authenticated connection over the unix socket of a server that may be down.
    pub(crate) fn try_client(&self) -> io::Result<Client> {
        let mut client = Client::unix(&self.socket())?;
        if let Some(password) = &self.password {
            client.run(&["AUTH", password]);
        }
        Ok(client)
    }

    /// Script calls (EVALSHA, FCALL) since the last `CONFIG RESETSTAT`.
    pub(crate) fn script_calls(&self) -> u64 {
        let stats = self.client().run(&["INFO", "commandstats"]).text();
        let calls = |command: &str| -> u64 {
            let prefix = format!("cmdstat_{command}:calls=");
            let line = stats.lines().find_map(|line| line.strip_prefix(prefix.as_str()));
            let calls = line.map(|line| line.split(',').next().expect("a number"));
            calls.map_or(0, |calls| calls.parse().expect("a number"))
        };
        calls("evalsha") + calls("fcall")
    }

    /// Kills the server (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the server again at the same address. Only a cluster node finds its state again;
    /// counters are gone.
    pub(crate) fn restart(&mut self) {
        self.process.kill();
        let started = Process::start(&self.arguments, READY);
        self.process = started.unwrap_or_else(|log| panic!("it does not start again:\n{log}"));
    }
}

/// The options of a TLS port.
fn secured(certificates: &Certificates, clients: bool, port: u16) -> Vec<String> {
    let path = |name: &str| certificates.path(name).display().to_string();
    let require = if clients { "yes" } else { "no" };
    #[rustfmt::skip]
    let words = [
        "--tls-port", &port.to_string(), "--tls-auth-clients", require,
        "--tls-cert-file", &path("server.crt"), "--tls-key-file", &path("server.key"),
        "--tls-ca-cert-file", &path("ca.crt"),
    ];
    words.map(str::to_owned).into()
}

/// The options of a cluster node, followed by `options`.
fn clustered(bus: u16, options: &[&str]) -> Vec<String> {
    let bus = bus.to_string();
    let words = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    words.iter().chain(options).map(|&word| word.to_owned()).collect()
}
