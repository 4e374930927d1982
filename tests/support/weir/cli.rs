//! One run of the binary to its exit, with its output.

use std::path::Path;

use super::weir;

/// A finished run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `weir` with `args` in `folder`.
pub(crate) fn run(folder: &Path, args: &[&str]) -> Run {
    let output = weir().current_dir(folder).args(args).output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
