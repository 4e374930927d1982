//! A real Envoy, which `make test` fetches.

pub(crate) mod recorder;
pub(crate) mod slow_upstream;
pub(crate) mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::http;
use super::process::Process;
use super::weir::write;

/// The tested Envoys: the newest, the oldest that the examples support, and that of Envoy Gateway 1.9.
pub(crate) const NEWEST: &str = "1.40.0";
pub(crate) const OLDEST: &str = "1.36.4";
pub(crate) const OF_GATEWAY: &str = "1.39.0";

/// A running Envoy. It is killed on drop.
#[allow(dead_code, reason = "some fields are held for what their drop does")]
pub(crate) struct Envoy {
    /// The address of the listener called `ingress`.
    pub(crate) ingress: SocketAddr,
    /// The address of the admin interface.
    pub(crate) admin: SocketAddr,
    process: Process,
    // Kept until the end of the test.
    _folder: TempDir,
}

impl Envoy {
    /// Starts Envoy `version` with `config`, whose listeners should have port 0. Waits until it
    /// serves. One worker is enough.
    pub(crate) fn start(version: &str, config: &str) -> Envoy {
        Envoy::with_workers(1, version, config)
    }

    /// Starts Envoy with this number of workers.
    pub(crate) fn with_workers(workers: u8, version: &str, config: &str) -> Envoy {
        let folder = TempDir::new().expect("a temporary folder");
        let admin_path = folder.path().join("admin");
        let mut command = envoy(version);
        command.arg("--config-path").arg(config_file(&folder, config));
        command.arg("--admin-address-path").arg(&admin_path);
        command.args(["--concurrency", &workers.to_string(), "--log-level", "info"]);
        // Without hot restart several Envoys can run at the same time.
        command.arg("--disable-hot-restart");
        let process = Process::spawn(&format!("envoy {version}"), command);
        process.wait_for("that it serves", |line| {
            line.contains("all dependencies initialized. starting workers").then_some(())
        });
        let admin = std::fs::read_to_string(&admin_path).expect("the file has the address");
        let admin = admin.trim().parse().expect("an address");
        let ingress = listener(admin, "ingress");
        Envoy { ingress, admin, process, _folder: folder }
    }

    /// The address of the listener called `name`.
    pub(crate) fn listener(&self, name: &str) -> SocketAddr {
        listener(self.admin, name)
    }

    /// The value of a counter of its statistics.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let path = format!("/stats?format=json&filter=^{}$", name.replace('.', "\\."));
        let stats = http::get(self.admin, &path).json();
        let value = &stats["stats"][0]["value"];
        value.as_u64().unwrap_or_else(|| panic!("no {name} in {stats}"))
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// Sends `GET path` through the ingress listener.
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> http::Response {
        http::get_with(self.ingress, path, headers)
    }
}

/// Runs `envoy --mode validate` on `config`. The error is its output.
pub(crate) fn validate(version: &str, config: &str) -> Result<(), String> {
    let folder = TempDir::new().expect("a temporary folder");
    let mut command = envoy(version);
    command.args(["--mode", "validate", "--config-path"]).arg(config_file(&folder, config));
    let output = command.output().expect("envoy starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(errors) }
}

/// An example with free ports instead of fixed ones, with `upstream` as its service and `rls` as
/// its rate limit service.
pub(crate) fn tuned(example: &str, rls: SocketAddr, upstream: SocketAddr) -> String {
    let cluster = |port: u16| format!("port_value: {port} }} }} }} }} ] }} ]");
    let config = example
        .replace(&cluster(8081), &cluster(rls.port()))
        .replace(&cluster(10001), &cluster(upstream.port()));
    let is_left = config.contains("port_value: 8081 }");
    assert!(!is_left && config != example, "the example's clusters moved");
    ["9901", "10000", "10001"].iter().fold(config, |config, port| {
        config.replace(&format!("port_value: {port} "), "port_value: 0 ")
    })
}

/// Whether Envoy `version` has been fetched.
pub(crate) fn is_fetched(version: &str) -> bool {
    program(version).exists()
}

/// The path of Envoy `version`.
pub(crate) fn program(version: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.join("target/envoy").join(version).join("bin/envoy")
}

fn envoy(version: &str) -> Command {
    let path = program(version);
    assert!(path.exists(), "there is no {}: run `make test`, it fetches Envoy", path.display());
    Command::new(path)
}

fn config_file(folder: &TempDir, config: &str) -> PathBuf {
    let path = folder.path().join("envoy.yaml");
    write(&path, config);
    path
}

/// The address of a listener, from the admin interface.
fn listener(admin: SocketAddr, name: &str) -> SocketAddr {
    let listeners = http::get(admin, "/listeners?format=json").json();
    let statuses = listeners["listener_statuses"].as_array().expect("a list of listeners");
    let status = statuses.iter().find(|status| status["name"] == name);
    let address = &status.unwrap_or_else(|| panic!("no {name} in {listeners}"))["local_address"];
    let socket = &address["socket_address"];
    let ip = socket["address"].as_str().expect("an IP address");
    format!("{ip}:{}", socket["port_value"]).parse().expect("an address")
}
