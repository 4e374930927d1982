//! Decisions inside the process: the limiter with the memory store, without a network.

use std::cell::LazyCell;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

#[path = "suite/in_process.rs"]
mod in_process;

use in_process::InProcessLoad;

const RULES: &str = "
domain: bench
descriptors:
- key: tenant
  value: acme
  descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
";

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    group.throughput(Throughput::Elements(1));
    for (name, users) in [("hot_1000", 1_000), ("100_000", 100_000), ("1_million", 1_000_000)] {
        let load = LazyCell::new(|| InProcessLoad::new(RULES, users).expect("the rules are valid"));
        let mut user = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                user = if user + 1 == users { 0 } else { user + 1 };
                load.decide(black_box(user)).expect("a store in memory answers at once");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
