//! The log in a folder that weir watches.

use tempfile::TempDir;

use crate::support::process::Process;
use crate::support::wait::until;
use crate::support::weir::{weir, write};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// Each line of the log is a file event in the folder above the rules. If file events were logged,
/// the log would grow without end.
#[test]
fn a_trace_log_beside_the_rules_has_no_file_events() {
    let folder = TempDir::new().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("rules")).expect("a folder");
    write(&at("rules/d.yaml"), RULES);
    // Only a shell can redirect the output: the test reads what a process writes to its streams.
    let mut command = std::process::Command::new("/bin/sh");
    command.env_clear().env("WEIR__LOG__LEVEL", "trace").env("WEIR__LOG__FORMAT", "json");
    let serve = "exec \"$0\" serve --rules rules --grpc-listen 127.0.0.1:0 \
                 --http-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 2> weir.log";
    command.args(["-c", serve]).arg(weir().get_program()).current_dir(folder.path());
    let _weir = Process::spawn("weir", command);
    let log = || std::fs::read_to_string(at("weir.log")).unwrap_or_default();
    until("the start", || log().contains("\"listening\""));
    write(&at("rules/d.yaml"), &RULES.replace("requests_per_unit: 1", "requests_per_unit: 2"));
    // The watcher saw this event, so it would also have logged those of the log.
    until("the reload", || log().contains("\"rules reloaded\""));
    let log = log();
    for line in ["inotify event", "notify::inotify", "mio::poll"] {
        assert!(!log.contains(line), "{line}: {log:.10000}");
    }
}
