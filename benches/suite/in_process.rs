//! Decisions inside the process: the limiter with the memory store, without a network.
#![allow(dead_code, reason = "each bench uses its part")]

use std::hint::black_box;
use std::time::Instant;

use anyhow::Context;
use futures_util::FutureExt;
use weir::descriptor::{Descriptor, Entry, Request, TraceContext};
use weir::key::KeySeed;
use weir::limiter::{Backend, Limiter};
use weir::rules::{Options, RuleSet, SourceFile, compile};
use weir::settings::ResponseSettings;
use weir::store::MemoryStore;
use weir::time::{Clock, SystemClock};

/// A limiter with the rules of a load, and its users.
pub(crate) struct InProcessLoad {
    limiter: Limiter,
    clock: SystemClock,
    rules: RuleSet,
    /// The users in the order of their requests. The text of a real request has just arrived, so it
    /// causes no cache miss in the limiter.
    users: Vec<String>,
}

/// Counters are created in another order than they are used, so that neighbours are not adjacent in
/// memory. The stride shares no factor with a power of ten, so it visits every user.
const STRIDE: usize = 7919;

impl InProcessLoad {
    /// A limiter with the rules `text` for the domain `bench`, after one decision for each of
    /// `users`.
    pub(crate) fn new(text: &str, users: usize) -> anyhow::Result<InProcessLoad> {
        let file = SourceFile { name: "bench.yaml".into(), text: text.to_owned() };
        let compiled = compile(&[file], &Options::default());
        let (rules, _) = compiled.map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
        let backend = Backend::Memory(MemoryStore::new(4 * users.max(100_000)));
        let limiter = Limiter::new(backend, KeySeed::random(), ResponseSettings::default());
        let users: Vec<String> = (0..users).map(|user| format!("u{user:07}")).collect();
        let load = InProcessLoad { limiter, clock: SystemClock::new(), rules, users };
        let users = load.users.len();
        (0..users).try_for_each(|user| load.decide(user * STRIDE % users))?;
        Ok(load)
    }

    /// Makes a decision for user number `user`.
    pub(crate) fn decide(&self, user: usize) -> anyhow::Result<()> {
        let entries = [
            Entry { key: "tenant", value: "acme" },
            Entry { key: "user", value: &self.users[user] },
        ];
        let descriptor = Descriptor {
            entries: &entries,
            limit: None,
            hits_addend: None,
            is_negative_hits: false,
        };
        let request = Request {
            domain: "bench",
            descriptors: &[descriptor],
            hits_addend: 0,
            timeout: None,
            trace: TraceContext::default(),
            must_decide: None,
        };
        let now = self.clock.now();
        let verdict = self.limiter.check(&self.rules, black_box(&request), now).now_or_never();
        black_box(verdict.context("a store in memory answers at once")?);
        Ok(())
    }

    /// Millions of decisions per second of CPU time, on one thread, in `rounds` rounds of a
    /// million.
    pub(crate) fn pace(&self, rounds: usize) -> anyhow::Result<Vec<f64>> {
        const DECISIONS: usize = 1_000_000;
        let mut paces = Vec::new();
        let mut user = 0;
        for _ in 0..rounds {
            let (wall, before) = (Instant::now(), thread_cpu());
            for _ in 0..DECISIONS {
                self.decide(user)?;
                user = if user + 1 == self.users.len() { 0 } else { user + 1 };
            }
            let used = thread_cpu().zip(before).map(|(after, before)| after - before);
            let seconds = used.unwrap_or_else(|| wall.elapsed().as_secs_f64());
            paces.push(DECISIONS as f64 / 1e6 / seconds);
        }
        Ok(paces)
    }
}

/// CPU time of the calling thread, in seconds, to the nanosecond.
fn thread_cpu() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}
