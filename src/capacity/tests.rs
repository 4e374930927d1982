//! Tests of the model: what follows from the rules of the service, and measured points.

use proptest::prelude::*;

use super::*;
use crate::algorithm;
use crate::rules::{Options, SourceFile, compile};
use crate::settings::Settings;
use crate::store::redis::NAME_BYTES;
use crate::store::redis::batch::ScriptCall;
use crate::store::redis::script::EncodedStep;
use crate::time::Micros;

mod measured_points;
mod published_costs;

/// The inputs of one rule with these fields of `rate_limit`.
fn inputs(calls: f64, rate_limit: &str, counters: u64) -> Inputs {
    let text = format!("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ {rate_limit} }}\n");
    let compiled = compile(&[SourceFile { name: "t.yaml".into(), text }], &Options::default());
    let (rules, _) = compiled.unwrap_or_else(|problems| panic!("{problems:#?}"));
    let loads = rules.rules().iter().filter_map(|rule| RuleLoad::of(rule, counters)).collect();
    Inputs::new(calls, loads, &Settings::default())
}

fn on(inputs: &Inputs, instances: u32, primaries: u32) -> CapacityPlan {
    let (instances, primaries) = (Some(instances), Some(primaries));
    calculate(&Inputs { instances, primaries, ..inputs.clone() })
}

/// Whether the numbers differ by rounding only.
fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

const EXACT: &str = "unit: hour, requests_per_unit: 1000";
const LEASED: &str = "unit: hour, requests_per_unit: 1000, mode: leased";
const SYNCED: &str = "unit: hour, requests_per_unit: 1000, mode: synced";

fn loads() -> impl Strategy<Value = (f64, u64, f64, u32, u32)> {
    (1.0..1e6, 1_u64..1_000_000, 0.0..1.5, 1_u32..64, 1_u32..140)
}

proptest! {
    /// Every call is one step on one primary.
    #[test]
    fn primaries_together_have_all_steps((calls, keys, skew, instances, primaries) in loads()) {
        let inputs = Inputs { skew, ..inputs(calls, EXACT, keys) };
        let traffic = Traffic::of(&inputs, instances);
        let all = Primaries::of(&inputs, &traffic, primaries);
        let shares: f64 = all.loads.iter().map(|one| one.share).sum();
        prop_assert!(is_close(shares, 1.0), "{}", shares);
        let steps: f64 = all.loads.iter().map(|one| one.steps_per_second).sum();
        prop_assert!(is_close(steps, calls), "{} {}", steps, calls);
        for one in &all.loads {
            prop_assert!(one.share <= all.hottest().share, "{:?}", one);
            prop_assert!(one.script_calls_per_second <= one.steps_per_second * (1.0 + 1e-9));
            prop_assert!(one.cores.low <= one.cores.high);
        }
    }

    #[test]
    fn more_calls_are_more_load((calls, keys, skew, instances, primaries) in loads()) {
        for rate_limit in [EXACT, LEASED] {
            let inputs = Inputs { skew, ..inputs(calls, rate_limit, keys) };
            let less = on(&inputs, instances, primaries);
            let more = on(&Inputs { calls: 1.5 * calls, ..inputs }, instances, primaries);
            let grows = |of: fn(&CapacityPlan) -> f64| of(&less) <= of(&more) * (1.0 + 1e-9);
            prop_assert!(grows(|plan| plan.redis.steps_per_second));
            prop_assert!(grows(|plan| plan.redis.request_bytes_per_second));
            prop_assert!(grows(|plan| plan.instance.cores.low));
            prop_assert!(less.instances_needed <= more.instances_needed.or(Some(u32::MAX)));
        }
    }

    #[test]
    fn leased_never_needs_more_calls_than_exact(
        (calls, keys, skew, instances, primaries) in loads(),
        denied in 0.0..1.0,
    ) {
        // Neither counts denied hits.
        let exact = format!("{EXACT}, count_denied: false");
        let [exact, leased] = [&exact, LEASED].map(|rate_limit| {
            on(&Inputs { skew, denied, ..inputs(calls, rate_limit, keys) }, instances, primaries)
        });
        let calls = |plan: &CapacityPlan| plan.redis.script_calls_per_second;
        prop_assert!(calls(&leased) <= calls(&exact) * (1.0 + 1e-9), "{:?}\n{:?}", leased, exact);
    }
}

/// docs/guides/modes.md, "Cost".
#[test]
fn modes_cost_what_their_page_says() {
    let steps = |rate_limit: &str, per_counter: f64| {
        let inputs = inputs(100.0 * per_counter, rate_limit, 100);
        on(&inputs, 1, 3).redis.steps_per_second / 100.0
    };
    let busy = steps(LEASED, 50.0);
    assert!((0.5..0.6).contains(&busy), "one call in about two seconds: {busy}");
    assert!(is_close(steps(LEASED, 0.25), 0.25), "rare counters are decided by Redis");
    let busy = steps(SYNCED, 50.0);
    assert!((1.99..2.01).contains(&busy), "two calls per interval: {busy}");
    assert!(steps(SYNCED, 0.1) > 4.0 * 0.1, "a replica of a rare counter serves few requests");
    let bucket = "algorithm: token_bucket, unit: second, requests_per_unit: 100, mode: leased";
    assert!(steps(bucket, 10.0) > steps(LEASED, 10.0), "credits of a bucket drain");
}

#[test]
fn full_counters_are_denied_from_memory() {
    let steps = |more: &str, denied: f64| {
        let inputs = Inputs { denied, ..inputs(1e4, &format!("{EXACT}{more}"), 10) };
        on(&inputs, 2, 1).redis.steps_per_second
    };
    for (more, denied, expected) in [
        ("", 0.0, 1e4),
        // Each of two instances asks again once a second, and reports the denied hits before.
        ("", 1.0, 10.0 * 2.0 * 2.0),
        (", count_denied: false", 1.0, 10.0 * 2.0),
        (", over_limit_cache: false", 1.0, 1e4),
    ] {
        let steps = steps(more, denied);
        assert!(is_close(steps, expected), "{more} {denied}: {steps}");
    }
}

#[test]
fn one_counter_needs_another_mode() {
    let one = |rate_limit: &str| on(&inputs(6e5, rate_limit, 1), 64, 48);
    let exact = one(EXACT);
    assert_eq!(exact.primaries_needed, None, "more primaries do not help");
    let first = &exact.bounds[0];
    assert_eq!(first.what, "CPU of the primary of one counter");
    assert!(first.used > 1.0 && first.change.contains("`mode: leased` for k"), "{first:?}");
    let leased = one(LEASED);
    assert_eq!(leased.primaries_needed, Some(1));
    assert!(leased.bounds.iter().all(|bound| bound.what != first.what || bound.used < 0.01));
}

/// A load, the primaries that it needs, and the advice. The test names the fields in their order.
type AdvisedLoad = (f64, u64, f64, &'static str, Option<u32>, Option<u32>, String);

/// The advice on the hottest primary proposes more primaries exactly if a larger number suffices.
#[test]
fn advice_agrees_with_the_needed_primaries() {
    const LOG: &str = "algorithm: sliding_window_log, unit: hour, requests_per_unit: 1000";
    const FAST: &str = "unit: hour, requests_per_unit: 1000, mode: synced, sync_interval: 10ms";
    let leased = "`mode: leased` for k in domain d";
    let counters = "more counters for k in domain d";
    let deployments = "several deployments, each with its own Redis and a part of the counters";
    let (no_help, too_few) = ("; more primaries do not help", "; more primaries do not suffice");
    let busy = "more primaries, or `mode: leased` for rules with busy counters";
    // Calls per second, counters, exponent of Zipf's law, rule, primaries, needed primaries, advice.
    #[rustfmt::skip]
    let table: [AdvisedLoad; 15] = [
        (1e6, 100_000, 1.0, EXACT, None, None, format!("{leased}{too_few}")),
        (1e6, 100_000, 1.0, EXACT, Some(1), None, format!("{leased}{too_few}")),
        (1e6, 100_000, 1.0, EXACT, Some(48), None, format!("{leased}{no_help}")),
        (1e6, 1, 0.0, EXACT, None, None, format!("{leased}{no_help}")),
        // Its algorithm supports no other mode.
        (1e6, 100_000, 1.0, LOG, None, None, format!("{counters}{too_few}")),
        (1e6, 1, 0.0, LOG, None, None, format!("{counters}{no_help}")),
        (1e8, 1_000, 0.5, FAST, None, None, format!("{leased}{too_few}")),
        // No mode suffices.
        (1e8, 100_000, 1.0, EXACT, None, None, format!("{leased}, and {deployments}{too_few}")),
        (1e8, 100_000, 1.0, LEASED, None, None, format!("{deployments}{too_few}")),
        (1e8, 100_000_000, 0.0, EXACT, None, None, format!("{deployments}{too_few}")),
        (1e5, 100_000, 1.0, EXACT, Some(1), Some(7), busy.to_owned()),
        (1e5, 100_000, 1.0, EXACT, None, Some(7), busy.to_owned()),
        (1e5, 100_000, 1.0, EXACT, Some(48), Some(7), format!("{leased}{no_help}")),
        (1e6, 100_000, 1.0, LEASED, Some(3), Some(16), "more primaries".to_owned()),
        (1e5, 100_000, 1.0, LOG, Some(1), Some(7), "more primaries".to_owned()),
    ];
    for (calls, keys, skew, rate_limit, primaries, needed, advice) in table {
        let case = format!("{calls} {keys} {skew} {rate_limit} {primaries:?}");
        let plan = calculate(&Inputs { skew, primaries, ..inputs(calls, rate_limit, keys) });
        let of_primary = |bound: &&BoundUse| bound.what.starts_with("CPU of the");
        let bound = plan.bounds.iter().find(of_primary).expect("a bound of the primaries");
        assert_eq!((plan.primaries_needed, &bound.change), (needed, &advice), "{case}");
    }
}

/// One of two counters has most of the load of a single server, and still fits a primary of a Cluster.
#[test]
fn advice_on_one_counter_names_primaries_that_suffice() {
    let inputs = Inputs { skew: 1.0, primaries: Some(1), ..inputs(2.9e4, EXACT, 2) };
    let plan = calculate(&inputs);
    assert!(plan.primaries_needed > Some(1), "{plan:?}");
    let change = "more primaries, or `mode: leased` for k in domain d";
    assert!(plan.bounds.iter().any(|bound| bound.change == change), "{plan:?}");
}

/// The proposed settings and modes are those with which a number of primaries suffices.
#[test]
fn advice_names_the_setting_that_suffices() {
    let change = |inputs: &Inputs| {
        let plan = calculate(inputs);
        assert_eq!(plan.primaries_needed, None, "{plan:?}");
        let cpu = plan.bounds.into_iter().find(|bound| bound.what.contains("primary of one"));
        cpu.expect("a bound").change
    };
    let mut without_functions = inputs(2.2e4, EXACT, 1);
    without_functions.uses_functions = false;
    let mut two = inputs(2e6, EXACT, 1);
    two.rules.push(two.rules[0].clone());
    two.rules[1].rule = "other".to_owned();
    for (inputs, expected) in [
        (without_functions, "`redis.functions: auto`"),
        (two, "`mode: leased` for all rules that support it"),
    ] {
        assert_eq!(change(&inputs), format!("{expected}; more primaries do not help"));
    }
}

#[test]
fn descriptors_of_one_call_share_script_calls() {
    let inputs = Inputs { descriptors: 4.0, ..inputs(100.0, EXACT, 1_000) };
    let [single, cluster] = [1, 12].map(|primaries| on(&inputs, 1, primaries).redis);
    assert!(is_close(single.steps_per_second, 400.0), "{single:?}");
    assert!(is_close(single.script_calls_per_second, 100.0), "{single:?}");
    assert!(cluster.script_calls_per_second > 350.0, "few of them share a hash tag: {cluster:?}");
}

/// A busy connection has two writes on their way, each with the steps of half a round trip.
#[test]
fn busy_connections_send_batches() {
    let mut inputs = inputs(1e5, EXACT, 1_000_000);
    inputs.set_workers(1, &Settings::default());
    inputs.round_trip = std::time::Duration::from_millis(1);
    let batch = on(&inputs, 1, 1).hottest_primary.steps_per_script_call;
    assert!(is_close(batch, 50.0), "{batch}");
    let over = on(&Inputs { calls: 1e6, ..inputs }, 1, 1).hottest_primary.steps_per_script_call;
    assert!(is_close(over, 128.0), "`redis.max_batch_size`: {over}");
}

/// A what-if limit has a counter for each counter of its rule, and a step for each call.
#[test]
fn a_what_if_limit_adds_a_step_per_call() {
    for rate_limit in [EXACT, LEASED, SYNCED] {
        let [without, with] = ["", ", shadow: { requests: 1 }"].map(|shadow| {
            let inputs = inputs(1e3, &format!("{rate_limit}{shadow}"), 100);
            on(&Inputs { denied: 0.5, ..inputs }, 2, 1)
        });
        let more = with.redis.steps_per_second - without.redis.steps_per_second;
        assert!(is_close(more, 1e3), "{rate_limit}: {more}");
        let counters = with.redis.counters_max / without.redis.counters_max;
        assert!(is_close(counters, 2.0), "{rate_limit}: {counters}");
    }
}

#[test]
fn tables_that_are_full_leave_the_rest_to_redis() {
    let many = inputs(1e6, LEASED, 200_000);
    let plan = on(&many, 1, 3);
    let pools = plan.bounds.iter().find(|bound| bound.what == "credit pools").expect("a bound");
    assert!(pools.used > 3.0, "{pools:?}");
    // Two thirds of the counters have no pool, and a step per call.
    let share = plan.redis.steps_per_second / 1e6;
    assert!((0.6..0.8).contains(&share), "{share}");
}

#[test]
fn bytes_are_those_of_the_protocol() {
    let inputs = inputs(1.0, EXACT, 1);
    let redis = on(&inputs, 1, 1).redis;
    let step = EncodedStep::of(&algorithm::plan(&inputs.rules[0].limit, 1, Micros::SECOND));
    let call = ScriptCall::single([0_u8; NAME_BYTES], &step, ());
    let head = [&b"FCALL"[..], step.script.function().as_bytes(), b"1"];
    let keys = call.keys().map(|key| &key[..]);
    let words = head.into_iter().chain(keys).chain(call.arguments());
    let word = |length: usize| format!("${length}\r\n").len() + length + 2;
    let request = "*5\r\n".len() + words.map(|bytes| word(bytes.len())).sum::<usize>();
    assert!(is_close(redis.request_bytes_per_second, request as f64), "{redis:?} {request}");
    assert!(is_close(redis.reply_bytes_per_second, word(step.reply_len) as f64), "{redis:?}");
}

#[test]
fn a_counter_lives_for_its_longest_window() {
    let days = |rate_limit: &str| {
        let inputs = inputs(1.0, rate_limit, 1);
        (super::counter_steps::lifetime(&inputs.rules[0].limit) - 1.0) / 86_400.0
    };
    assert_eq!(days("requests: 1, window: 30d"), 30.0);
    assert_eq!(days("requests: 1, window: { calendar: month }"), 31.0);
    assert_eq!(days("requests: 1, window: { calendar: year }"), 366.0);
}
