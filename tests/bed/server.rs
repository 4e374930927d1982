//! A single Redis: on a unix socket, and on a TCP port of loopback if it is given one.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::process::Process;
use super::resp::Client;

/// How long a test waits for one answer before it says that there is none.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running server with its own empty folder.
pub(crate) struct Server {
    process: Process,
    folder: TempDir,
    arguments: Vec<String>,
    /// Where it listens, if it was given a port.
    pub(crate) port: Option<u16>,
}

impl Server {
    /// On a unix socket only.
    pub(crate) fn local() -> Server {
        Server::start(None, &[])
    }

    /// On a free port of loopback too, with these options (as in `redis.conf`, one word each).
    pub(crate) fn listening(options: &[&str]) -> Server {
        Server::start(Some(free_port()), options)
    }

    fn start(port: Option<u16>, options: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let path = folder.path().to_str().expect("a path in UTF-8").to_owned();
        let port_text = port.unwrap_or(0).to_string();
        let socket = format!("{path}/redis.sock");
        #[rustfmt::skip]
        let fixed = [
            "--bind", "127.0.0.1", "--port", &port_text, "--unixsocket", &socket,
            "--dir", &path, "--save", "", "--appendonly", "no", "--daemonize", "no",
        ];
        let arguments: Vec<String> = fixed.iter().chain(options).map(|&s| s.to_owned()).collect();
        let process = Process::start(&arguments);
        Server { process, folder, arguments, port }
    }

    /// Its process, to freeze it or to read its log.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Where its unix socket is.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.expect("started with a port")).into()
    }

    /// A new connection over the unix socket.
    pub(crate) fn client(&self) -> Client {
        Client::unix(&self.socket()).expect("it accepts connections")
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again where it was, empty.
    pub(crate) fn restart(&mut self) {
        self.process.kill();
        self.process = Process::start(&self.arguments);
    }
}

/// A port of loopback that nothing listens on at this moment.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener.local_addr().expect("bound").port()
}
