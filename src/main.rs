//! The `weir` binary: parses the command line and runs it.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    weir::cli::Cli::parse().run()
}
