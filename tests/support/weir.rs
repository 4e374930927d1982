//! The real binary, listening on free ports.

pub(crate) mod cli;
mod image;
pub(crate) mod metrics;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use tempfile::TempDir;

use super::process::Process;
use super::rls::Client;

/// A running `weir serve`. It is killed on drop.
pub(crate) struct Weir {
    process: Process,
    folder: TempDir,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// A process to start: its arguments, environment and files.
pub(crate) struct Setup {
    folder: TempDir,
    command: Command,
    /// Listener flags that get the address of a free port.
    listeners: Vec<&'static str>,
    /// The rules folder or file; `None` if the settings name the rules.
    rules: Option<PathBuf>,
}

impl Weir {
    /// Starts with one rule file and default settings.
    pub(crate) fn start(rules: &str) -> Weir {
        Weir::setup().rules("rules.yaml", rules).start()
    }

    /// A process with an empty folder of rules.
    pub(crate) fn setup() -> Setup {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("rules")).expect("a folder in a fresh folder");
        let mut command = weir();
        command.arg("serve");
        let rules = Some(folder.path().join("rules"));
        command.env("WEIR__LOG__FORMAT", "json");
        let listeners = vec!["--grpc-listen", "--http-listen", "--admin-listen"];
        Setup { folder, command, listeners, rules }
    }

    /// The service as `make run` starts it, with free ports.
    pub(crate) fn example() -> Setup {
        let settings = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/weir.yaml");
        let mut setup = Weir::setup().rules_of_settings();
        // The settings name the rules relative to the root.
        setup.command.current_dir(env!("CARGO_MANIFEST_DIR"));
        setup.config(&settings.to_string_lossy())
    }

    /// A new gRPC connection.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.grpc)
    }

    /// The sum over all series of a metric that have every one of `labels`, written as on the page.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        metrics::Metrics::scrape(self.admin).sum(name, labels)
    }

    /// The folder of its rule files.
    pub(crate) fn rules_folder(&self) -> PathBuf {
        self.folder.path().join("rules")
    }

    /// The running process.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Setup {
    /// Adds a rule file.
    pub(crate) fn rules(self, name: &str, text: &str) -> Setup {
        self.file(&format!("rules/{name}"), text)
    }

    /// Uses the rules at `path`.
    pub(crate) fn rules_at(self, path: &Path) -> Setup {
        Setup { rules: Some(path.to_owned()), ..self }
    }

    /// Leaves the rules to the settings.
    pub(crate) fn rules_of_settings(self) -> Setup {
        Setup { rules: None, ..self }
    }

    /// Adds another file, beside the folder `rules`.
    pub(crate) fn file(self, name: &str, text: &str) -> Setup {
        write(&self.folder.path().join(name), text);
        self
    }

    /// The path of a file that [`Setup::file`] added.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds an argument of `weir serve`.
    pub(crate) fn arg(mut self, word: &str) -> Setup {
        self.command.arg(word);
        self
    }

    /// Sets an environment variable: a setting (`WEIR__SECTION__KEY`) or one of
    /// envoyproxy/ratelimit's.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Setup {
        self.command.env(name, value);
        self
    }

    /// Sets `store.timeout`.
    pub(crate) fn store_timeout(self, timeout: &str) -> Setup {
        self.env("WEIR__STORE__TIMEOUT", timeout)
    }

    /// Uses a settings file that [`Setup::file`] wrote.
    pub(crate) fn config(mut self, name: &str) -> Setup {
        self.command.arg("--config").arg(self.folder.path().join(name));
        self
    }

    /// Leaves the address of a listener to the settings.
    pub(crate) fn without_flag(mut self, listener: &str) -> Setup {
        self.listeners.retain(|name| *name != listener);
        self
    }

    /// Starts the process and waits for the log line with its addresses.
    pub(crate) fn start(self) -> Weir {
        let (process, folder) = self.spawn();
        let [grpc, http, admin] = process.wait_for("where it listens", listening);
        Weir { process, folder, grpc, http, admin }
    }

    /// Starts the process and waits for its exit. Returns the status and the output.
    pub(crate) fn start_in_vain(self) -> (ExitStatus, String) {
        let (mut process, _folder) = self.spawn();
        let status = process.wait_for_exit();
        (status, process.output())
    }

    fn spawn(mut self) -> (Process, TempDir) {
        for listener in self.listeners {
            self.command.args([listener, "127.0.0.1:0"]);
        }
        if let Some(rules) = self.rules {
            self.command.arg("--rules").arg(rules);
        }
        (Process::spawn("weir", self.command), self.folder)
    }
}

/// The setting with which `make test` runs tests again without the fast path of gRPC.
const FAST_PATH: &str = "WEIR__GRPC__FAST_PATH";

/// The binary with an empty environment, so that a developer's environment has no influence.
pub(crate) fn weir() -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_weir")))
}

/// Another program, with the same environment.
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env_clear();
    if let Some(fast_path) = std::env::var_os(FAST_PATH) {
        command.env(FAST_PATH, fast_path);
    }
    command
}

/// Writes a file. The panic message names the path.
pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// The addresses in the log line `listening`: gRPC, HTTP, admin.
fn listening(line: &str) -> Option<[SocketAddr; 3]> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    if line["message"] != "listening" {
        return None;
    }
    let address = |name: &str| line[name].as_str()?.parse().ok();
    Some([address("grpc")?, address("http")?, address("admin")?])
}
