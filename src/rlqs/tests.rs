//! Tests of the engine with its streams, by a clock that moves only when it is set.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use prost::Message;

use super::settling::LedgerCall;
use super::*;
use crate::client_address::ClientAddress;
use crate::descriptor::Entry;
use crate::key::{CounterKey, KeySeed};
use crate::proto::bucket_action::BucketAction as WireAction;
use crate::proto::{
    BlanketRule, BucketId, BucketQuotaUsage, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    Strategy,
};
use crate::rules::{Found, Options, RuleLimit, SourceFile};
use crate::time::{Clock, ManualClock};

mod bucket_outcome;
mod ceasing;
mod dividing;
mod driving;
mod flood;
mod hostile;
mod invariant;
mod local;
mod moving;
mod overview;
mod pacing;
mod relearn;
mod reloads;
mod resting;
mod shadow_mode;
mod shared;
mod simulation;

/// The rules of most tests. The counter of `tenant` counts per value.
const RULES: &str = "
  - {key: tenant, rate_limit: {unit: second, requests_per_unit: 100}}
  - {key: open, rate_limit: {unlimited: true}}
  - {key: month, rate_limit: {requests: 5, window: {calendar: month}}}
  - {key: slots, rate_limit: {algorithm: concurrency, max: 5, hold: 60s}}
  - {key: cost, rate_limit: {unit: second, requests_per_unit: 100, cost: 2}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 10}}
";

/// Rules that a test can replace.
struct TestRuleSet {
    rules: Mutex<Arc<RuleSet>>,
    version: AtomicU64,
}

impl ActiveRuleSet for TestRuleSet {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    fn read(&self, reader: &mut dyn FnMut(&RuleSet)) {
        let rules = self.rules.lock().expect("no panic").clone();
        reader(&rules);
    }
}

fn rule_set(descriptors: &str) -> Arc<RuleSet> {
    let text = format!("domain: d\ndescriptors:\n{descriptors}");
    let file = SourceFile { name: Arc::from("test.yaml"), text };
    let compiled = crate::rules::compile(&[file], &Options::default());
    Arc::new(compiled.unwrap_or_else(|problems| panic!("{problems:?}")).0)
}

/// An engine, its clock and its rules.
struct Process {
    engine: Arc<QuotaEngine>,
    clock: Arc<ManualClock>,
    rules: Arc<TestRuleSet>,
}

/// What an Envoy gets for a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Got {
    Allow,
    Deny,
    /// Requests per second, and the size of the bucket.
    Rate(f64, u32),
    Abandon,
}

/// The address 10.0.0.`host`.
fn address(host: u8) -> ClientAddress {
    IpAddr::from([10, 0, 0, host]).into()
}

fn config() -> RlqsConfig {
    RlqsConfig {
        assignment_ttl: Micros::from_secs(12),
        idle_timeout: Micros::from_secs(600),
        key_order: Vec::new(),
        burst_percent: 20,
        relearn: false,
        max_streams: 100,
        max_buckets_per_stream: 50,
        max_buckets: 200,
        max_message_bytes: 1 << 20,
        max_local_holders: 10,
        bounds: RequestBounds { max_descriptors: 9, max_entries: 4, max_text_bytes: 100 },
        on_error: OnError::Allow,
    }
}

impl Process {
    fn new(config: RlqsConfig) -> Process {
        let clock = Arc::new(ManualClock::at(Micros::from_secs(1_000)));
        Process::with(config, clock, None)
    }

    fn with(
        config: RlqsConfig,
        clock: Arc<ManualClock>,
        ledger: Option<Arc<dyn SharedLedger>>,
    ) -> Process {
        let (rules, version) = (Mutex::new(rule_set(RULES)), AtomicU64::new(1));
        let rules = Arc::new(TestRuleSet { rules, version });
        let (time, seed) = (clock.clone(), KeySeed::fixed([1, 2]));
        let engine = QuotaEngine::new(config, seed, time, ledger, rules.clone());
        Process { engine, clock, rules }
    }

    /// A stream from 10.0.0.1, as those of most tests.
    fn open(&self, name: Option<&str>) -> EnvoyStream {
        self.engine.open(address(1), name).expect("a free stream")
    }

    fn reload(&self, descriptors: &str) {
        *self.rules.rules.lock().expect("no panic") = rule_set(descriptors);
        self.rules.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the clock, tick by tick, and does the work of the driver. The local holders report every
    /// five seconds.
    fn pass(&self, millis: u64) {
        let end = self.clock.now().saturating_add(Micros::from_millis(millis));
        while self.clock.now() < end {
            let left = end.saturating_sub(self.clock.now());
            self.clock.advance(left.min(Micros::from_millis(250)));
            if self.clock.now().0 % 5_000_000 < 250_000 {
                (0..64).for_each(|shard| self.engine.report_local_uses(shard, self.clock.now()));
            }
            self.settle();
        }
    }

    /// The work of the driver at this instant.
    fn settle(&self) {
        if let Some(new) = self.engine.read_new_rules() {
            for shard in 0..64 {
                self.engine.apply_rules(shard, &self.engine.keys_of(shard), &new);
            }
            self.engine.announce_rules(&new);
        }
        self.engine.expire(self.clock.now());
        loop {
            let mut calls = Vec::new();
            for shard in 0..64 {
                while self.engine.settle_due(shard, self.clock.now(), &mut calls) {}
            }
            if calls.is_empty() {
                return;
            }
            for LedgerCall { key, call, .. } in calls {
                let ledger = self.engine.ledger.clone().expect("a shared ledger");
                let reply = ledger.settle(&key, &call.settlement);
                let result = reply.now_or_never().expect("a fake store answers at once");
                self.engine.finish_call(&key, call.sent_at, result, self.clock.now());
            }
        }
    }
}

impl Process {
    /// Checks hits of `tenant` = `value`.
    fn check(&self, value: &str, hits: i64) -> LocalCheck {
        let rules = self.rules.rules.lock().expect("no panic").clone();
        let entries = [Entry { key: "tenant", value }];
        let Found::Rule(rule) = rules.find("d", &entries) else { panic!("no rule") };
        let RuleLimit::Limit(limit) = &rule.limit else { panic!("no limit") };
        let key = rule.key(&KeySeed::fixed([1, 2]), &entries);
        self.engine.check(rule, limit, &key, hits, self.clock.now())
    }

    /// How many of `calls` single hits pass.
    fn passed(&self, value: &str, calls: usize) -> usize {
        let allowed = |_: &usize| match self.check(value, 1) {
            LocalCheck::Decided(decision) => decision.allowed,
            other => panic!("{other:?}"),
        };
        (0..calls).filter(allowed).count()
    }

    /// The counter of `tenant` = `value`.
    fn counter(&self, value: &str) -> CounterKey {
        let rules = self.rules.rules.lock().expect("no panic").clone();
        let entries = [Entry { key: "tenant", value }];
        let Found::Rule(rule) = rules.find("d", &entries) else { panic!("no rule") };
        rule.key(&KeySeed::fixed([1, 2]), &entries)
    }
}

/// An encoded report of these buckets: each an id in the form `k=v,k=v`, and its requests.
fn report(domain: &str, usages: &[(&str, u64)]) -> Vec<u8> {
    let usage = |&(id, hits): &(&str, u64)| {
        let pairs = id.split(',').filter_map(|pair| pair.split_once('='));
        let bucket: BTreeMap<String, String> =
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket }),
            time_elapsed: Some(prost_types::Duration::default()),
            num_requests_allowed: hits,
            num_requests_denied: 0,
        }
    };
    let bucket_quota_usages = usages.iter().map(usage).collect();
    let reports = RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages };
    reports.encode_to_vec()
}

/// The actions that wait for the Envoy, by bucket, with their seconds to live.
fn actions(stream: &mut EnvoyStream) -> Vec<(String, Got, i64)> {
    let mut all = Vec::new();
    while let Some(message) = stream.next().now_or_never() {
        let response = RateLimitQuotaResponse::decode(&*message).expect("a valid message");
        assert!(!response.bucket_action.is_empty());
        for action in response.bucket_action {
            let pairs = action.bucket_id.expect("an id").bucket;
            let id: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let (got, ttl) = got(action.bucket_action.expect("an action"));
            all.push((id.join(","), got, ttl));
        }
    }
    all
}

fn got(action: WireAction) -> (Got, i64) {
    let WireAction::QuotaAssignmentAction(assign) = action else { return (Got::Abandon, 0) };
    let ttl = assign.assignment_time_to_live.expect("a time to live").seconds;
    assert!(ttl >= 1, "shorter ones expire at once");
    let got = match assign.rate_limit_strategy.expect("one").strategy.expect("a kind") {
        Strategy::BlanketRule(rule) if rule == i32::from(BlanketRule::AllowAll) => Got::Allow,
        Strategy::BlanketRule(_) => Got::Deny,
        Strategy::TokenBucket(bucket) => {
            let interval = bucket.fill_interval.expect("an interval");
            assert!(interval.seconds >= 1 && interval.nanos >= 1, "{interval:?}");
            let tokens = bucket.tokens_per_fill.expect("tokens");
            Got::Rate(f64::from(tokens) / interval.seconds as f64, bucket.max_tokens)
        }
        Strategy::RequestsPerTimeUnit(_) => panic!("Envoy ignores it"),
    };
    (got, ttl)
}

/// The newest action of each bucket.
fn newest(stream: &mut EnvoyStream) -> BTreeMap<String, Got> {
    actions(stream).into_iter().map(|(id, got, _)| (id, got)).collect()
}
