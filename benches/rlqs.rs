//! The cost of RLQS: CPU time per report and of the driver, memory per bucket and stream, settlements in
//! Redis, and the latency of other calls meanwhile.
//!
//! `make bench-rlqs` runs it. It prints the tables of docs/design/rlqs.md in Markdown, and warnings on
//! stderr.
//!
//!   cargo bench --bench rlqs -- [--rounds N] [--rate N] [--shape 1000x10] [--redis 100x100-own]
//!     [--reload 1000x1000]
//!
//! Each size of the first table has its own process, because an allocator keeps memory that it has had.

use std::env::current_exe;
use std::process::Command;

use anyhow::ensure;
use clap::Parser;

mod rlqs {
    pub(crate) mod cpu;
    pub(crate) mod envoys;
    pub(crate) mod fleet;
    pub(crate) mod in_process;
    pub(crate) mod new_buckets;
    pub(crate) mod on_redis;
    pub(crate) mod reload;
    pub(crate) mod reports;
    pub(crate) mod through_binary;
}

#[path = "suite/machine.rs"]
mod machine;

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod certificates;
    pub(crate) mod http;
    pub(crate) mod process;
    pub(crate) mod redis;
    pub(crate) mod resident;
    pub(crate) mod rls;
    pub(crate) mod wait;
    pub(crate) mod weir;
}

/// The allocator of weir, for the memory inside this process.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use rlqs::reports::{PERIOD, Shape};
use rlqs::{in_process, on_redis, reload, through_binary};

/// The sizes inside the process.
const SHAPES: [Shape; 4] = [
    Shape { streams: 1_000, buckets: 1_000, own: false },
    Shape { streams: 1_000, buckets: 10, own: false },
    Shape { streams: 10, buckets: 1_000, own: false },
    Shape { streams: 1_000, buckets: 100, own: true },
];

/// The size through the binary.
const THROUGH_BINARY: Shape = Shape { streams: 100, buckets: 100, own: false };

/// The sizes on Redis: few limits, many, and more than Redis can settle whenever they are due.
const ON_REDIS: [Shape; 3] = [
    Shape { streams: 100, buckets: 10, own: false },
    Shape { streams: 100, buckets: 100, own: true },
    Shape { streams: 100, buckets: 400, own: true },
];

/// Streams without buckets whose memory is measured.
const STREAMS: usize = 100_000;

/// Measures the cost of RLQS and prints it.
#[derive(Debug, Parser)]
struct Options {
    /// Rounds of reports of each measurement, of 5 s each.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Calls of ShouldRateLimit per second.
    #[arg(long, default_value_t = 2_000.0)]
    rate: f64,
    /// Measure only this size inside the process: `1000x10`, or `1000x10-own` if each Envoy has its
    /// own limits.
    #[arg(long)]
    shape: Option<Shape>,
    /// Measure only the memory of streams without buckets.
    #[arg(long)]
    streams: bool,
    /// Measure only this size on Redis: `100x100-own`.
    #[arg(long)]
    redis: Option<Shape>,
    /// Measure only reloads for the buckets of this size: `1000x1000`.
    #[arg(long)]
    reload: Option<Shape>,
    /// `cargo bench` adds this.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if !options.bench {
        println!("nothing is measured without --bench, which cargo bench adds");
        return Ok(());
    }
    let rounds = usize::from(options.rounds);
    if let Some(shape) = options.shape {
        println!("{}", in_process::row(shape, rounds)?);
        return Ok(());
    }
    if options.streams {
        let bytes = in_process::stream_bytes(STREAMS)?;
        println!("An open stream without buckets takes {bytes:.0} bytes.");
        return Ok(());
    }
    if let Some(shape) = options.redis {
        println!("{}", on_redis::HEAD);
        on_redis::rows(shape, rounds)?.iter().for_each(|row| println!("{row}"));
        return Ok(());
    }
    if let Some(shape) = options.reload {
        println!("{}", reload::HEAD);
        for row in reload::rows(shape)? {
            println!("{row}");
        }
        return Ok(());
    }
    for (name, value) in machine::facts() {
        println!("{name}: {value}");
    }

    println!("\n{}", in_process::HEAD);
    for shape in SHAPES {
        if in_process::fits(shape) {
            in_own_process(&["--shape", &shape.to_string()], rounds)?;
        } else {
            eprintln!("{shape} is left out: this machine has too little memory");
        }
    }
    println!();
    in_own_process(&["--streams"], rounds)?;

    let Shape { streams, buckets, .. } = THROUGH_BINARY;
    println!("\n{streams} Envoys with {buckets} buckets each, and {} calls/s:\n", options.rate);
    println!("{}", through_binary::HEAD);
    let length = PERIOD * u32::from(options.rounds);
    for row in through_binary::rows(THROUGH_BINARY, length, options.rate)? {
        println!("{row}");
    }

    println!("\n{}", on_redis::HEAD);
    for shape in ON_REDIS {
        on_redis::rows(shape, rounds)?.iter().for_each(|row| println!("{row}"));
    }
    Ok(())
}

/// Runs this program with `words`. It prints to the same output.
fn in_own_process(words: &[&str], rounds: usize) -> anyhow::Result<()> {
    let mut command = Command::new(current_exe()?);
    let ended = command.args(["--bench", "--rounds", &rounds.to_string()]).args(words).status()?;
    ensure!(ended.success(), "the measurement {words:?} has failed: {ended}");
    Ok(())
}
