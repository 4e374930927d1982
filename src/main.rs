//! The `weir` binary: parses the command line and runs it.

use std::process::ExitCode;

/// jemalloc returns the memory of a burst of calls to the system; glibc's allocator keeps most of it
/// (docs/design/allocator.md). `.cargo/config.toml` sets its options.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    weir::cli::Cli::from_process().run()
}
