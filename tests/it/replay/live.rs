//! A live service answers random calls and records them. A replay decides them as the service did.

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
";

const KEYS: [&str; 14] = [
    "window", "sliding", "log", "token", "leaky", "slots", "tokens", "tiers", "named", "paid",
    "shadow", "quota", "open", "unknown",
];

/// Random calls.
struct Caller {
    client: Client,
    state: u64,
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
        let key = KEYS[self.below(KEYS.len() as u64) as usize];
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

/// Sends `calls` calls to a service that `setup` starts, and replays its log with `args` by the rules
/// of the service. Every verdict is that of the service.
fn replays_as_decided(seed: u64, calls: u64, setup: Setup, args: &[&str]) {
    let rules = setup.path("rules");
    let path = setup.path("decisions.jsonl");
    let path = path.to_str().expect("a path is text");
    let setup = setup.rules("d.yaml", RULES).env("WEIR__LOG__DECISIONS__PATH", path);
    let weir = setup.env("WEIR__LOG__DECISIONS__MAX_PER_SECOND", "1000000").start();
    let client = weir.client();
    let mut caller = Caller { client, state: seed, closing: Vec::new(), denied: 0, closed: 0 };
    (0..calls).for_each(|_| caller.call());
    let recorded = || std::fs::read_to_string(path).unwrap_or_default();
    until("the whole recording", || recorded().lines().count() as u64 == calls);

    let rules = rules.to_str().expect("a path is text");
    let folder = weir.rules_folder();
    let sides = ["--rules", rules, "--against", rules, path];
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
    replays_as_decided(1, 10_000, Weir::setup(), &[]);
}

/// The modes of responses come from the settings.
#[test]
fn a_replay_applies_the_modes_of_responses() {
    for (seed, mode) in [(2, "shadow_mode"), (3, "quota_mode")] {
        let settings = format!("response: {{ {mode}: true }}\n");
        let setup = Weir::setup().file("weir.yaml", &settings).config("weir.yaml");
        let config = setup.path("weir.yaml");
        let config = config.to_str().expect("a path is text");
        replays_as_decided(seed, 1_000, setup, &["--config", config]);
    }
}

/// Hashed values select the same counters, and hashed lease ids the same leases.
#[test]
fn a_replay_decides_hashed_values_alike() {
    let setup = Weir::setup().env("WEIR__LOG__DECISIONS__VALUES", "hashed");
    replays_as_decided(4, 1_000, setup, &[]);
}
