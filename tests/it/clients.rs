//! The samples of docs/start/clients.md in Go and Node. `page_commands.rs` runs the one in Python.

use std::path::PathBuf;
use std::process::Command;

use crate::page_commands::text::root;
use crate::support::weir::{Weir, write};
use crate::support::window_edge::within_a_minute;

/// The folder in which `make test-clients` builds the sample of a language. The deadlines of the
/// samples are longer there, because a sample lets a request pass when a busy machine is late.
fn built(language: &str) -> PathBuf {
    root().join("target/grpc-clients").join(language)
}

/// The output of a sample that sends four requests to `weir`.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("the sample starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Three requests a minute pass, and the fourth does not.
const SHOWN: &str = "pass\npass\npass\nstop\n";

#[test]
#[ignore = "needs Go; `make test-clients` builds the sample and runs this"]
fn client_samples_in_go_are_decided() {
    within_a_minute(|| {
        let weir = Weir::example().start();
        let mut command = Command::new(built("go").join("client"));
        assert_eq!(output(command.arg(weir.grpc.to_string())), SHOWN);
    });
}

#[test]
#[ignore = "needs Node; `make test-clients` installs its packages and runs this"]
fn client_samples_in_node_are_decided() {
    within_a_minute(|| {
        let weir = Weir::example().start();
        let text = std::fs::read_to_string(root().join("examples/clients/client.mjs"));
        let text = text.expect("the sample");
        let unhurried = text.replace("timeout = 100;", "timeout = 30_000;");
        assert_ne!(text, unhurried, "the sample has another deadline");
        // Node finds packages beside the program.
        let sample = built("node").join("client.mjs");
        write(&sample, &unhurried);
        let mut command = Command::new("node");
        command.arg(&sample).arg(weir.grpc.to_string()).arg(root().join("proto"));
        assert_eq!(output(&mut command), SHOWN);
    });
}
