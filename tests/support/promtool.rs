//! `promtool check metrics`, where it is installed (Debian: in the package `prometheus`).

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

/// The complaints of promtool about `page`, one per line. `None` without promtool; a line on stderr
/// reports that, even if the test passes.
pub(crate) fn complaints(page: &str) -> Option<Vec<String>> {
    let command = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match command {
        Ok(promtool) => promtool,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let word = "promtool is not installed: it did NOT look at the metrics\n";
            // `eprintln!` is captured and shown only when a test fails.
            let _ = std::io::stderr().write_all(word.as_bytes());
            return None;
        }
        Err(error) => panic!("promtool cannot be run: {error}"),
    };
    let mut input = promtool.stdin.take().expect("stdin is piped");
    input.write_all(page.as_bytes()).expect("promtool reads");
    drop(input);
    let said = promtool.wait_with_output().expect("promtool ends");
    let text = String::from_utf8_lossy(&said.stderr) + String::from_utf8_lossy(&said.stdout);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert!(said.status.success() || !lines.is_empty(), "promtool: {}", said.status);
    Some(lines)
}
