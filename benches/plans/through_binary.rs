//! The cost of plans through the real binary: CPU time of calls, memory, and the time until a change is
//! active.

use std::fs::{File, rename};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tempfile::TempDir;
use weir_bench::{CancelSignal, Pacing, Plan, run};

use crate::support::rls::{Client, costing, descriptor, request};
use crate::support::wait::until;
use crate::support::weir::{Weir, write};
use crate::{Options, book, cpu, median, more, name, plan_of, rules};

/// Prints the figures.
pub(crate) fn measure(options: &Options) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let (plans, customers) =
        (folder.path().join("plans.yaml"), folder.path().join("customers.csv"));
    write(&plans, &book());
    write_customers(&customers, options.customers, 0)?;
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let setup = Weir::setup().rules("rules.yaml", &rules(true));
    let setup = setup.env("WEIR__PLANS__SOURCE", "file").env("WEIR__PLANS__FILE", &path(&plans));
    let setup = setup.env("WEIR__PLANS__CUSTOMERS_FILE", &path(&customers));
    let setup = setup.env("WEIR__PLANS__MAX_CUSTOMERS", &options.customers.to_string());
    let started = Instant::now();
    let mut with = setup.start();
    let start = started.elapsed().as_secs_f64();
    let mut without = Weir::setup().rules("rules.yaml", &rules(false)).start();
    let memory = [&mut with, &mut without].map(|weir| weir.process().resident_kib());
    let per_customer = memory[0].saturating_sub(memory[1]) as f64 * 1024.0;
    let per_customer = per_customer / options.customers as f64;

    let (mut open, mut saturated) = (Sides::default(), Sides::default());
    for _ in 0..options.rounds {
        for (sides, pacing) in
            [(&mut open, Pacing::Open(options.rate)), (&mut saturated, Pacing::Closed)]
        {
            // An order that is the same in every round would favour one side.
            let with_first = sides.with.len().is_multiple_of(2);
            for is_with in [with_first, !with_first] {
                let weir = if is_with { &mut with } else { &mut without };
                let cost = load(weir, options, pacing)?;
                if is_with { sides.with.push(cost) } else { sides.without.push(cost) }
            }
        }
    }

    let client = with.client();
    let first = name(0, options.customers);
    let of_plan = until_limit(&client, &first, 2_000_009, || {
        let text = book().replace("2000000 }", "2000009 }");
        write(&folder.path().join("next"), &text);
        Ok(rename(folder.path().join("next"), &plans)?)
    })?;
    let of_customers = until_limit(&client, &first, 2_000_001, || {
        write_customers(&folder.path().join("next"), options.customers, 1)?;
        Ok(rename(folder.path().join("next"), &customers)?)
    })?;
    println!("| through the binary | |");
    println!("| --- | --- |");
    println!("| resident memory per customer | {per_customer:.1} bytes |");
    println!("| start with all customers | {start:.1} s |");
    open.print(&format!("{} calls/s", options.rate));
    saturated.print("saturated");
    println!("| a changed plan is active after | {of_plan:.2} s |");
    println!("| a changed file of all customers is active after | {of_customers:.2} s |");
    Ok(())
}

/// Writes a file of customers. Each has its plan, or one of the next plans, by `shift`.
fn write_customers(path: &Path, customers: usize, shift: usize) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for customer in 0..customers {
        writeln!(file, "{},{}", name(customer, customers), plan_of(customer + shift))?;
    }
    Ok(file.flush()?)
}

/// The cost of one load.
#[derive(Clone, Copy)]
struct Cost {
    /// CPU time of a call, in seconds.
    cpu: f64,
    per_second: f64,
}

/// The costs with and without plans, one of each per round.
#[derive(Default)]
struct Sides {
    with: Vec<Cost>,
    without: Vec<Cost>,
}

impl Sides {
    /// Prints the medians, and the median of the ratios of the rounds.
    fn print(&self, load: &str) {
        let both = [("with", &self.with), ("without", &self.without)];
        for (name, costs) in both {
            let cpu = median(costs.iter().map(|cost| cost.cpu).collect());
            let pace = median(costs.iter().map(|cost| cost.per_second).collect());
            println!("| {load}: CPU of a call {name} plans | {:.2} us |", 1e6 * cpu);
            println!("| {load}: calls per second {name} plans | {pace:.0} |");
        }
        let rounds = self.with.iter().zip(&self.without);
        let ratios = rounds.map(|(with, without)| more(with.cpu, without.cpu)).collect();
        println!("| {load}: more CPU with plans, median of rounds | {:.1} % |", median(ratios));
    }
}

/// Calls of all customers in uniform order.
fn load(weir: &mut Weir, options: &Options, pacing: Pacing) -> anyhow::Result<Cost> {
    let pid = weir.process().pid();
    let descriptor = vec![("api_key".to_owned(), "c{n}".to_owned())];
    let plan = Plan {
        pacing,
        connections: 4,
        warmup: Duration::ZERO,
        duration: Duration::from_secs(options.seconds),
        ..Plan::new("calls", vec![descriptor], options.customers as u64)
    };
    let (_canceller, cancel) = CancelSignal::new();
    let before = cpu::of_process(pid)?;
    let report = run(&plan, &weir.grpc.to_string(), &cancel, |_| {})?;
    let used = cpu::of_process(pid)? - before;
    ensure!(report.failed == 0 && report.over_limit == 0, "not all pass: {:?}", report.errors);
    for warning in report.warnings {
        eprintln!("{warning}");
    }
    Ok(Cost { cpu: used / report.decided as f64, per_second: report.per_second })
}

/// The seconds from the end of `change` until the customer has this limit.
fn until_limit(
    client: &Client,
    customer: &str,
    limit: u32,
    change: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    change()?;
    let changed = Instant::now();
    until("the change", || {
        let peek = request("calls", vec![costing(0, descriptor(&[("api_key", customer)]))]);
        let found = client.check(peek).statuses[0].current_limit.clone();
        found.is_some_and(|found| found.requests_per_unit == limit)
    });
    Ok(changed.elapsed().as_secs_f64())
}
