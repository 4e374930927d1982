//! `weir completions`: a script for a shell that completes commands and flags.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the script.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<u8> {
    // clap_complete panics when its output fails, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "weir", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(0)
}
