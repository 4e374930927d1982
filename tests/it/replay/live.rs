//! A live service answers random calls and records them. A replay decides them as the service did.

use std::fs::File;
use std::io::Read;

use envoy_types::pb::google::protobuf::value::Kind;
use weir::splitmix64;

use super::{denied, report};
use crate::support::rls::{
    Client, Code, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, costing, descriptor, request,
};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};

/// Every algorithm, and what else changes codes.
const RULES: &str = "
domain: d
denied_requests: free
descriptors:
  - { key: window, rate_limit: { unit: second, requests_per_unit: 5 } }
  - { key: sliding, rate_limit: { algorithm: sliding_window, requests: 9, window: 2s } }
  - { key: log, rate_limit: { algorithm: sliding_window_log, requests: 7, window: 1s } }
  - { key: token, rate_limit: { algorithm: token_bucket, requests: 6, window: 1s, burst: 9 } }
  - { key: leaky, rate_limit: { algorithm: leaky_bucket, requests: 8, window: 1s, burst: 4 } }
  - { key: slots, rate_limit: { algorithm: concurrency, max: 3, hold: 1h } }
  - key: tokens
    rate_limit: { algorithm: sliding_window, requests: 90, window: 3s, reserve: { hold: 1m } }
  - key: tiers
    rate_limit: { tiers: [{ requests: 4, window: 1s }, { requests: 50, window: 1m }] }
  - { key: named, rate_limit: { name: named, unit: second, requests_per_unit: 2 } }
  - { key: paid, rate_limit: { unit: second, requests_per_unit: 50, replaces: [{ name: named }] } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 3 } }
  - { key: open, rate_limit: { unlimited: true } }
  - { key: day, rate_limit: { requests: 90, window: { calendar: day, zone: Europe/Zurich } } }
  - { key: costly, rate_limit: { unit: second, requests_per_unit: 9, cost: 2.5 } }
  - key: what-if
    rate_limit: { unit: second, requests_per_unit: 4, shadow: { requests_per_unit: 1 } }
  - key: planned
    rate_limit:
      { name: calls, unit: second, requests_per_unit: 1, limit_from: { customer: planned } }
";

/// The plans of two of the three values of `planned`.
const PLANS: &str = "
plans: { pro: { calls: 3 }, house: { calls: unlimited } }
customers: { '\u{e4}\"0': pro, '\u{e4}\"1': house }
";

/// The last one has customers, who are not found if values are hashed.
static KEYS: [&str; 18] = [
    "window", "sliding", "log", "token", "leaky", "slots", "tokens", "tiers", "named", "paid",
    "shadow", "quota", "open", "unknown", "day", "costly", "what-if", "planned",
];

/// Random calls.
struct Caller {
    client: Client,
    state: u64,
    keys: &'static [&'static str],
    /// Descriptors that close the open leases.
    closing: Vec<RateLimitDescriptor>,
    denied: u64,
    closed: usize,
}

impl Caller {
    fn below(&mut self, end: u64) -> u64 {
        splitmix64::next(&mut self.state) % end
    }

    /// A call, or a descriptor that closes a lease of an earlier one.
    fn call(&mut self) {
        if !self.closing.is_empty() && self.below(8) == 0 {
            let chosen = self.below(self.closing.len() as u64) as usize;
            let closing = self.closing.swap_remove(chosen);
            self.closed += 1;
            self.send(request("d", vec![closing]));
            return;
        }
        let count = 1 + self.below(2);
        let descriptors = (0..count).map(|_| self.descriptor()).collect();
        let hits_addend = self.below(3) as u32;
        self.send(RateLimitRequest { hits_addend, ..request("d", descriptors) });
    }

    fn descriptor(&mut self) -> RateLimitDescriptor {
        let key = self.keys[self.below(self.keys.len() as u64) as usize];
        let value = format!("\u{e4}\"{}", self.below(3));
        let sent = descriptor(&[(key, &value)]);
        match self.below(20) {
            0..8 => costing(self.below(4), sent),
            8 => RateLimitDescriptor { is_negative_hits: true, ..costing(1, sent) },
            9 => {
                // One request per second.
                let limit = Some(RateLimitOverride { requests_per_unit: 1, unit: 1 });
                RateLimitDescriptor { limit, ..sent }
            }
            _ => sent,
        }
    }

    fn send(&mut self, request: RateLimitRequest) {
        let descriptors = request.descriptors.clone();
        let response = self.client.check(request);
        if response.overall_code == Code::OverLimit as i32 {
            self.denied += 1;
        }
        if let Some(id) = lease(&response) {
            // Closing a lease at a counter that has none of it changes nothing.
            let leased = descriptors.into_iter().filter(|one| {
                matches!(one.entries[0].key.as_str(), "slots" | "tokens") && one.limit.is_none()
            });
            self.closing.extend(leased.map(|mut one| {
                one.entries.push(Entry { key: "lease".to_owned(), value: id.clone() });
                one
            }));
        }
    }
}

/// The id of the lease that a response grants.
fn lease(response: &RateLimitResponse) -> Option<String> {
    let metadata = response.dynamic_metadata.as_ref()?;
    let Kind::StructValue(lease) = metadata.fields.get("lease")?.kind.as_ref()? else {
        return None;
    };
    match lease.fields.get("id")?.kind.as_ref()? {
        Kind::StringValue(id) => Some(id.clone()),
        _ => None,
    }
}

/// The lines of a recording that grows. It may be too large to be read again each time.
struct RecordedLines {
    file: Option<File>,
    lines: u64,
}

impl RecordedLines {
    /// The number of whole lines so far.
    fn count(&mut self, path: &str) -> u64 {
        if self.file.is_none() {
            self.file = File::open(path).ok();
        }
        let mut buffer = vec![0; 1 << 16];
        while let Some(Ok(length @ 1..)) = self.file.as_mut().map(|file| file.read(&mut buffer)) {
            let ends = buffer[..length].iter().filter(|byte| **byte == b'\n');
            self.lines += ends.count() as u64;
        }
        self.lines
    }
}

/// Sends `calls` calls to a service that `setup` starts, and replays its log with `args` by the rules
/// of the service. Every verdict is that of the service.
fn replays_as_decided(
    seed: u64,
    calls: u64,
    keys: &'static [&'static str],
    setup: Setup,
    args: &[&str],
) {
    let rules = setup.path("rules");
    let plans = setup.path("plans.yaml");
    let plans = plans.to_str().expect("a path is text");
    let setup = setup.file("plans.yaml", PLANS).env("WEIR__PLANS__SOURCE", "file");
    let setup = setup.env("WEIR__PLANS__FILE", plans);
    let setup = setup.env("WEIR__LOG__DECISIONS__MAX_BYTES", "1000000000000");
    let path = setup.path("decisions.jsonl");
    let path = path.to_str().expect("a path is text");
    let setup = setup.rules("d.yaml", RULES).env("WEIR__LOG__DECISIONS__PATH", path);
    let weir = setup.env("WEIR__LOG__DECISIONS__MAX_PER_SECOND", "1000000").start();
    let client = weir.client();
    let closing = Vec::new();
    let mut caller = Caller { client, state: seed, keys, closing, denied: 0, closed: 0 };
    (0..calls).for_each(|_| caller.call());
    let mut recorded = RecordedLines { file: None, lines: 0 };
    until("the whole recording", || recorded.count(path) == calls);

    let rules = rules.to_str().expect("a path is text");
    let folder = weir.rules_folder();
    let sides = ["--rules", rules, "--against", rules, "--plans", plans, path];
    let found = report(&folder, &[&sides[..], args].concat());
    let ours = &found["calls"];
    assert_eq!(
        (&ours["replayed"], &ours["more"], &ours["fewer"]),
        (&calls.into(), &0.into(), &0.into())
    );
    assert_eq!(denied(&found), [caller.denied; 2], "seed {seed}: {found}");
    let recorded = &found["recorded"];
    assert_eq!(recorded["calls"], calls, "seed {seed}: {found}");
    for difference in ["denied_by_old_only", "denied_in_recording_only", "descriptors_different"] {
        assert_eq!(recorded[difference], 0, "seed {seed}: {found}");
    }
    assert_eq!(found["lines"]["out_of_order"], 0, "seed {seed}: {found}");
    assert!(caller.closed > calls as usize / 100, "seed {seed}: {} leases", caller.closed);
}

/// Ten thousand calls over all algorithms, with the log of the service.
#[test]
fn a_replay_decides_as_the_live_service() {
    replays_as_decided(1, 10_000, &KEYS, Weir::setup(), &[]);
}

/// Ten million calls, or the number in `WEIR_REPLAY_CALLS`.
#[test]
#[ignore = "`make replay-live` runs it on a release build"]
fn a_long_replay_decides_as_the_live_service() {
    let calls = std::env::var("WEIR_REPLAY_CALLS").map(|calls| calls.parse());
    let calls = calls.unwrap_or(Ok(10_000_000)).expect("WEIR_REPLAY_CALLS is a number");
    replays_as_decided(5, calls, &KEYS, Weir::setup(), &[]);
}

/// The modes of responses come from the settings.
#[test]
fn a_replay_applies_the_modes_of_responses() {
    for (seed, mode) in [(2, "shadow_mode"), (3, "quota_mode")] {
        let settings = format!("response: {{ {mode}: true }}\n");
        let setup = Weir::setup().file("weir.yaml", &settings).config("weir.yaml");
        let config = setup.path("weir.yaml");
        let config = config.to_str().expect("a path is text");
        replays_as_decided(seed, 1_000, &KEYS, setup, &["--config", config]);
    }
}

/// Hashed values select the same counters, and hashed lease ids the same leases.
#[test]
fn a_replay_decides_hashed_values_alike() {
    let setup = Weir::setup().env("WEIR__LOG__DECISIONS__VALUES", "hashed");
    replays_as_decided(4, 1_000, &KEYS[..KEYS.len() - 1], setup, &[]);
}
