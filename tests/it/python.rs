//! Programs of Python that use the scripts of benches/.

use std::process::{Command, Output};

use serde_json::Value;

use crate::page_commands::text::root;

/// Runs a program that may import what is in benches/ and tests/support/.
pub(crate) fn python(program: &str, arguments: &[&str]) -> Output {
    Command::new("python3")
        .args(["-B", "-c", program])
        .args(arguments)
        .env("PYTHONPATH", "benches:tests/support")
        .current_dir(root())
        .output()
        .expect("python3, which `make test` needs")
}

/// The JSON that a program prints.
pub(crate) fn printed(program: &str, arguments: &[&str]) -> Value {
    let output = python(program, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).expect("the program prints JSON")
}
