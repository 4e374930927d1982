//! The cost of plans inside the process: memory of the table, and CPU time of decisions on the memory
//! store without a network. There the lookup of a plan weighs most.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use futures_util::FutureExt;
use weir::descriptor::{Descriptor, Entry, Request, TraceContext};
use weir::key::KeySeed;
use weir::limiter::{Backend, Limiter};
use weir::plans::{PlanBook, Plans, PlansConfig};
use weir::rules::{Options, RuleSet, SourceFile, compile};
use weir::settings::ResponseSettings;
use weir::store::MemoryStore;
use weir::time::{Clock, SystemClock};

use crate::support::resident::resident_kib;
use crate::{book, cpu, median, more, name, plan_of, rules};

/// The customers that send requests are this far apart, so that neighbours are not adjacent in memory.
const STRIDE: usize = 7919;

/// Prints the memory of `customers`, and the CPU time of decisions for `decided` of them.
pub(crate) fn measure(customers: usize, decided: usize, rounds: usize) -> anyhow::Result<()> {
    let before = resident_kib("self");
    let started = Instant::now();
    let plans = plans(customers)?;
    let seconds = started.elapsed().as_secs_f64();
    let bytes = resident_kib("self").saturating_sub(before) as f64 * 1024.0;
    let with = Load::new(Some(plans), customers, decided)?;
    let without = Load::new(None, customers, decided)?;
    let (mut all_with, mut all_without) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        all_with.push(with.round()?);
        all_without.push(without.round()?);
    }
    let (with, without) = (median(all_with), median(all_without));
    println!("| inside the process | |");
    println!("| --- | --- |");
    println!("| resident memory per customer | {:.1} bytes |", bytes / customers as f64);
    println!("| time to build the table | {seconds:.2} s |");
    println!("| CPU of a decision with plans | {:.0} ns |", 1e9 * with);
    println!("| the same without plans | {:.0} ns |", 1e9 * without);
    println!("| more with plans | {:.1} % |", more(with, without));
    Ok(())
}

/// Plans with all customers.
fn plans(customers: usize) -> anyhow::Result<Arc<Plans>> {
    let plans = Plans::new(PlansConfig { max_customers: customers, asks_per_customer: false });
    let (book, _) = PlanBook::parse_yaml(&book(), "plans.yaml")
        .map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    let mut table = plans.table(&book, customers);
    for customer in 0..customers {
        let added = table.add(&name(customer, customers), &plan_of(customer));
        added.map_err(anyhow::Error::msg)?;
    }
    let table = table.finish();
    plans.publish(book, table);
    Ok(plans)
}

/// A limiter and its customers.
struct Load {
    limiter: Limiter,
    rules: RuleSet,
    clock: SystemClock,
    /// The names in the order of their requests. The text of a real request has just arrived, so it
    /// causes no cache miss in the limiter.
    names: Vec<String>,
}

impl Load {
    /// A limiter after one decision for each of `decided` of the customers.
    fn new(plans: Option<Arc<Plans>>, customers: usize, decided: usize) -> anyhow::Result<Load> {
        let file = SourceFile { name: "bench.yaml".into(), text: rules(plans.is_some()) };
        let compiled = compile(&[file], &Options::default());
        let (rules, _) = compiled.map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
        let decided = decided.clamp(1, customers);
        let backend = Backend::Memory(MemoryStore::new(4 * decided.max(100_000)));
        let mut limiter = Limiter::new(backend, KeySeed::random(), ResponseSettings::default());
        if let Some(plans) = plans {
            plans.use_rules(&rules);
            limiter = limiter.with_plans(plans, None);
        }
        let number = |index: usize| index.wrapping_mul(STRIDE) % customers;
        let names = (0..decided).map(|index| name(number(index), customers)).collect();
        let load = Load { limiter, rules, clock: SystemClock::new(), names };
        load.decide_all()?;
        Ok(load)
    }

    /// CPU time of a decision, in seconds: of one for each of the customers.
    fn round(&self) -> anyhow::Result<f64> {
        let before = cpu::of_this_thread()?;
        self.decide_all()?;
        Ok((cpu::of_this_thread()? - before) / self.names.len() as f64)
    }

    fn decide_all(&self) -> anyhow::Result<()> {
        for name in &self.names {
            let entries = [Entry { key: "api_key", value: name }];
            let descriptor = Descriptor {
                entries: &entries,
                limit: None,
                hits_addend: None,
                is_negative_hits: false,
            };
            let request = Request {
                domain: "calls",
                descriptors: &[descriptor],
                hits_addend: 0,
                timeout: None,
                trace: TraceContext::default(),
                must_decide: None,
            };
            let now = self.clock.now();
            let verdict = self.limiter.check(&self.rules, black_box(&request), now).now_or_never();
            black_box(verdict.context("a store in memory answers at once")?);
        }
        Ok(())
    }
}
