//! A primary, its replica, and three sentinels that watch them.

use std::fs;

use tempfile::TempDir;

use super::ports::Port;
use super::process::Process;
use super::server::Server;

/// The service name in the sentinels.
pub(crate) const SERVICE: &str = "weir";

/// A pair of servers with its sentinels.
pub(crate) struct Watched {
    /// Index 0 starts as the primary, index 1 as its replica.
    pub(crate) servers: [Server; 2],
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    process: Process,
    _folder: TempDir,
    port: Port,
}

impl Watched {
    /// The sentinels fail over after 500 ms without contact to the primary.
    pub(crate) fn start() -> Watched {
        let primary = Server::listening(&[]);
        let replica = Server::listening(&["--replicaof", &format!("127.0.0.1 {}", primary.port())]);
        replica.process().wait_for_line("sync: Finished with success");
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::over(&primary)).collect();
        for sentinel in &sentinels {
            sentinel.process.wait_for_line("+slave slave");
            for other in sentinels.iter().filter(|other| other.port() != sentinel.port()) {
                let port = format!(" 127.0.0.1 {} @ ", other.port());
                sentinel.process.wait_for_line(&port);
            }
        }
        Watched { servers: [primary, replica], sentinels }
    }

    /// The ports of the sentinels.
    pub(crate) fn sentinel_ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(|sentinel| sentinel.port()).collect()
    }

    /// The URL of the service, by all its sentinels.
    pub(crate) fn url(&self) -> String {
        let ports = self.sentinel_ports();
        let nodes: String =
            ports[1..].iter().map(|port| format!("&node=127.0.0.1:{port}")).collect();
        format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}{nodes}", ports[0])
    }

    /// Waits until every sentinel reports the replica as the new primary.
    pub(crate) fn wait_for_failover(&self) {
        let end = format!("127.0.0.1 {}", self.servers[1].port());
        for sentinel in &self.sentinels {
            let line = sentinel.process.wait_for_line("+switch-master");
            assert!(line.ends_with(&end), "{line}");
        }
    }
}

impl Sentinel {
    fn over(primary: &Server) -> Sentinel {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let port = Port::take();
        let settings = format!(
            "bind 127.0.0.1\nport {port}\ndir {folder}\n\
             sentinel monitor {SERVICE} 127.0.0.1 {watched} 2\n\
             sentinel down-after-milliseconds {SERVICE} 500\n\
             sentinel failover-timeout {SERVICE} 5000\n",
            port = port.number(),
            folder = folder.path().display(),
            watched = primary.port(),
        );
        let file = folder.path().join("sentinel.conf");
        fs::write(&file, settings).expect("the folder is ours");
        let arguments = [file.display().to_string(), "--sentinel".to_owned()];
        let process = Process::start(&arguments, "+monitor")
            .unwrap_or_else(|log| panic!("a sentinel does not start:\n{log}"));
        Sentinel { process, _folder: folder, port }
    }

    fn port(&self) -> u16 {
        self.port.number()
    }
}
