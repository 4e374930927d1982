//! The `weir` binary: parses the command line and runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::Cli::from_process().run()
}
