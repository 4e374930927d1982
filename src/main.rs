//! The `weir` binary: parses the command line and runs it.

use std::process::ExitCode;

/// Every call makes and drops some dozens of small objects. The system's allocator takes more time
/// for them, and keeps more of what a flood has left behind.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::cli::Cli::from_process().run()
}
