//! `weir man`: a manual page per command, in a folder.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use super::Cli;

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages. It is made if it does not exist.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes `weir.1`, and a page such as `weir-serve.1` per command.
pub(super) fn run(args: &ManArgs) -> anyhow::Result<u8> {
    let folder = &args.folder;
    let failed = || format!("{}: no pages can be written; name a folder", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(failed)?;
    Ok(0)
}
