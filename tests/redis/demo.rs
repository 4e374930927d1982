//! examples/demo: the script of `make demo`, with the binary of the tests.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::envoy::{NEWEST, program};
use crate::support::http::{get, get_with};
use crate::support::process::Process;
use crate::support::schedule::shared;
use crate::support::wait::{TIMEOUT, until};

/// A running demo, with its files in a temporary folder.
struct Demo {
    process: Process,
    folder: TempDir,
}

impl Demo {
    /// Starts the script with options and the binary at `weir`.
    fn start(weir: &str, options: &[&str]) -> Demo {
        let folder = TempDir::new().expect("a temporary folder");
        let mut command = Command::new("python3");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo/run.py");
        command.arg("-B").arg(script).arg("--folder").arg(folder.path()).args(options);
        command.env("WEIR", weir).env("ENVOY", program(NEWEST));
        Demo { process: Process::spawn("demo", command), folder }
    }

    /// The file with the addresses and the process ids.
    fn addresses(&self) -> Value {
        let path = self.folder.path().join("addresses.json");
        let text = std::fs::read_to_string(path).expect("the demo has written its addresses");
        serde_json::from_str(&text).expect("JSON")
    }

    /// The process id of a child.
    fn pid(&self, name: &str) -> u64 {
        self.addresses()["pids"][name].as_u64().expect("a process id")
    }

    /// The process ids of all children, which run.
    fn running(&self) -> Vec<u64> {
        let addresses = self.addresses();
        let pids = addresses["pids"].as_object().expect("names and ids");
        let pids: Vec<u64> = pids.values().map(|pid| pid.as_u64().expect("an id")).collect();
        assert!(pids.iter().copied().all(is_running), "{addresses}");
        pids
    }

    /// Waits until all children run under load.
    fn wait_until_started(&self) {
        self.process.wait_for("how to end it", |line| line.contains("Ctrl-C").then_some(()));
    }

    /// Waits for a line with decisions that has `text` and positive rates of all these kinds.
    fn wait_for_rates(&self, text: &str, kinds: &[&str]) {
        self.process.wait_for(&format!("{text} with {kinds:?}"), |line| {
            let all = kinds.iter().all(|kind| rate(line, kind) > Some(0));
            (line.contains(text) && all).then_some(())
        });
    }

    /// Waits until every instance serves and has reached Redis.
    fn wait_until_healthy(&self) {
        let addresses = self.addresses();
        let admins = addresses["admin"].as_array().expect("a list of addresses");
        assert_eq!(admins.len(), 3);
        for admin in admins {
            let admin: SocketAddr = admin.as_str().and_then(|text| text.parse().ok()).expect("one");
            until("a weir serves and reaches Redis", || {
                let status = get(admin, "/status").json();
                status["health"] == "serving" && status["store"]["reachable"] == true
            });
        }
    }

    /// Waits for the end of the script.
    fn wait_for_exit(&mut self) -> ExitStatus {
        self.process.wait_for_exit()
    }
}

impl Drop for Demo {
    /// Lets the script end its children, also after a failed test. A killed script could not.
    fn drop(&mut self) {
        if self.process.is_alive() {
            self.process.terminate();
        }
        let deadline = Instant::now() + TIMEOUT;
        while self.process.is_alive() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The number after `kind` in a line such as `3 s  admitted 143/s  denied  57/s`.
fn rate(line: &str, kind: &str) -> Option<u64> {
    let (_, rest) = line.split_once(&format!("{kind} "))?;
    rest.trim_start().split_once('/')?.0.parse().ok()
}

/// Whether a process exists.
fn is_running(pid: u64) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Whether a process has ended. One whose parent has not waited for it is a zombie.
fn has_ended(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
}

/// Requests are admitted and denied through Envoy, also while Redis is down. Ctrl-C ends all.
#[test]
fn demo_keeps_limits_while_redis_is_down() {
    let _permit = shared();
    // The demo prints a line every 3 s, so it prints at least one while Redis is down.
    let mut demo = Demo::start(env!("CARGO_BIN_EXE_weir"), &["--restart-after", "8"]);
    demo.wait_until_started();
    demo.wait_until_healthy();
    let envoy = demo.addresses()["envoy"].as_str().and_then(|text| text.parse().ok());
    let envoy: SocketAddr = envoy.expect("an address");
    let ask = || get_with(envoy, "/", &[("x-user", "guest")]).status;
    assert_eq!(ask(), 200);
    until("three requests per minute are admitted", || ask() == 429);
    demo.wait_for_rates("redis up", &["admitted", "denied"]);

    let redis = demo.pid("redis");
    let killed = Command::new("kill").args(["-s", "KILL", &redis.to_string()]).status();
    assert!(killed.expect("kill runs").success());
    demo.wait_for_rates("redis down", &["admitted", "denied", "by fallback"]);
    demo.process
        .wait_for("that Redis starts", |line| line.contains("redis starts again").then_some(()));
    demo.wait_until_healthy();
    assert_ne!(demo.pid("redis"), redis);

    let pids = demo.running();
    assert_eq!(pids.len(), 5, "Redis, three weirs and Envoy");
    demo.process.signal("INT");
    assert!(demo.wait_for_exit().success(), "{}", demo.process.output());
    assert!(!pids.into_iter().any(is_running));
}

#[test]
fn demo_ends_after_its_time() {
    let _permit = shared();
    let mut demo = Demo::start(env!("CARGO_BIN_EXE_weir"), &["--seconds", "5"]);
    demo.wait_until_started();
    let pids = demo.running();
    assert!(demo.wait_for_exit().success(), "{}", demo.process.output());
    let output = demo.process.output();
    assert!(output.contains("all processes have ended"), "{output}");
    assert!(!pids.into_iter().any(is_running));
}

/// A binary that ends at once. Redis has started before it.
#[test]
fn demo_ends_its_children_after_a_failure() {
    let _permit = shared();
    let mut demo = Demo::start("false", &[]);
    assert_eq!(demo.wait_for_exit().code(), Some(1), "{}", demo.process.output());
    let output = demo.process.output();
    assert!(output.contains("demo: weir-1 ended with 1; the end of "), "{output}");
    assert!(!is_running(demo.pid("redis")));
}

/// The script cannot end them itself then. Linux sends them SIGTERM.
#[test]
fn the_children_of_a_killed_demo_end() {
    let _permit = shared();
    let mut demo = Demo::start(env!("CARGO_BIN_EXE_weir"), &[]);
    demo.wait_until_started();
    let pids = demo.running();
    demo.process.signal("KILL");
    assert!(!demo.wait_for_exit().success());
    until("all children have ended", || pids.iter().copied().all(has_ended));
}
