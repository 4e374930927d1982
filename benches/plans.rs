//! The cost of plans: memory of 10 million customers on 5 plans, CPU time of decisions beside the same
//! rules without plans, and the time until a change of the files is active.
//!
//! `make bench-plans` runs it. It prints tables in Markdown. The measurements with and without plans take
//! turns, so that a change of the machine's speed affects both.
//!
//!   cargo bench --bench plans -- [--customers N] [--decided N] [--rounds N] [--rate N] [--seconds N]

use std::fmt::Write;

use clap::Parser;

#[allow(dead_code, reason = "each bench uses its part")]
#[path = "rlqs/cpu.rs"]
mod cpu;

#[path = "suite/machine.rs"]
mod machine;

mod plans {
    pub(crate) mod in_process;
    pub(crate) mod through_binary;
}

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/support"]
mod support {
    pub(crate) mod certificates;
    pub(crate) mod http;
    pub(crate) mod process;
    pub(crate) mod resident;
    pub(crate) mod rls;
    pub(crate) mod wait;
    pub(crate) mod weir;
}

/// The allocator of weir, for the memory inside this process.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The number of plans.
const PLANS: usize = 5;

/// Measures the cost of plans and prints it.
#[derive(Debug, Parser)]
struct Options {
    /// Customers.
    #[arg(long, default_value_t = 10_000_000)]
    customers: usize,
    /// Customers that send requests.
    #[arg(long, default_value_t = 1_000_000)]
    decided: usize,
    /// Measurements of each kind.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Calls per second through the binary.
    #[arg(long, default_value_t = 5_000.0)]
    rate: f64,
    /// Seconds of each load through the binary.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
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
    anyhow::ensure!(options.customers > 0 && options.rounds > 0, "at least 1 of each");
    for (name, value) in machine::facts() {
        println!("{name}: {value}");
    }
    println!("{} customers on {PLANS} plans\n", options.customers);
    plans::in_process::measure(options.customers, options.decided, options.rounds)?;
    println!();
    plans::through_binary::measure(&options)
}

/// The rules of all measurements. Their limits are not reached.
fn rules(has_plans: bool) -> String {
    let from = if has_plans { ", limit_from: { customer: api_key, default: plan0 }" } else { "" };
    format!(
        "domain: calls\ndescriptors:\n- key: api_key\n  rate_limit: {{ name: calls, window: 1h, \
         requests: 1000000{from} }}\n"
    )
}

/// The plans of all measurements.
fn book() -> String {
    let mut text = "plans:\n".to_owned();
    for plan in 0..PLANS {
        writeln!(text, "  plan{plan}: {{ calls: {} }}", 2_000_000 + plan)
            .expect("a String takes all");
    }
    text
}

/// The name of customer number `customer` of `customers`, as the load generator writes it.
fn name(customer: usize, customers: usize) -> String {
    let width = (customers - 1).to_string().len();
    format!("c{customer:0width$}")
}

/// The name of the plan of a customer.
fn plan_of(customer: usize) -> String {
    format!("plan{}", customer % PLANS)
}

/// The value in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// By how many percent `with` is more than `without`.
fn more(with: f64, without: f64) -> f64 {
    100.0 * (with / without - 1.0)
}
