//! A token budget through Envoy: reserved at the start, corrected to the actual cost at the end.

use std::thread;

use super::fixture::{Fixture, Lease};
use super::forms::Form;
use crate::support::envoy::recorder::Call;
use crate::support::envoy::{NEWEST, OLDEST};
use crate::support::http::stream;
use crate::support::http::{self, Response};
use crate::support::window_edge::within_an_hour;

const EXAMPLE: &str = include_str!("../../../examples/envoy/token-budget.yaml");
const RULES: &str = include_str!("../../../examples/rules/token-budget.yaml");

/// Tokens that each request of the example reserves.
const RESERVED: u32 = 2000;

/// The rules of the example with a budget per hour. Its minute is too short for a test, see
/// [`within_an_hour`].
fn rules(tokens: u32, calls: u32) -> String {
    let rules = RULES
        .replace("unit: minute", "unit: hour")
        .replace("requests_per_unit: 20", &format!("requests_per_unit: {calls}"))
        .replace("requests: 100000", &format!("requests: {tokens}"));
    assert!(rules.contains("unit: hour") && !rules.contains(": 20\n") && !rules.contains("100000"));
    rules
}

fn start(version: &str, rules: &str) -> Fixture {
    Fixture::start(&Form { version, example: EXAMPLE }, rules)
}

/// Tokens left.
fn remaining(fixture: &Fixture) -> u32 {
    fixture.look_at("llm", &[("tokens", "chat"), ("user", "anna")]).limit_remaining
}

/// A complete call of the model that costs `tokens`. `meanwhile` runs before it ends.
fn chat(fixture: &Fixture, tokens: u64, meanwhile: impl FnOnce()) -> Response {
    let ingress = fixture.envoy().ingress;
    let before = fixture.upstream.arrived();
    let cost = tokens.to_string();
    thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let headers = [("x-user", "anna"), ("x-total-tokens", cost.as_str())];
            http::get_with(ingress, "/v1/chat", &headers)
        });
        fixture.upstream.wait_for(before + 1);
        meanwhile();
        fixture.upstream.let_one_go();
        calling.join().expect("the client gets a response")
    })
}

/// A call of the model that is denied.
fn denied(fixture: &Fixture) {
    let answer = http::get_with(fixture.envoy().ingress, "/v1/chat", &[("x-user", "anna")]);
    assert_eq!(answer.status, 429);
}

/// The hits of the only descriptor.
fn settled(call: &Call) -> Option<u64> {
    let [settlement] = &call.request.descriptors[..] else { return None };
    settlement.hits_addend.as_ref().map(|hits| hits.value)
}

/// While the model works, 2000 of 10 000 tokens are reserved. The actual cost is 300, 2500, or 0.
#[test]
fn a_reservation_is_corrected_to_its_cost_once() {
    for version in [NEWEST, OLDEST] {
        within_an_hour(|| {
            let fixture = start(version, &rules(10_000, 100));
            let mut before = 10_000;
            for (number, cost) in [(1, 300), (2, 2_500), (3, 0)] {
                let reserved = || assert_eq!(remaining(&fixture), before - RESERVED, "during it");
                let answer = chat(&fixture, u64::from(cost), reserved);
                assert_eq!(answer.status, 200);
                let calls = fixture.recorder.wait_for(2 * number);
                let (reserve, settle) = (&calls[2 * number - 2], &calls[2 * number - 1]);
                assert_eq!(Lease::released(settle), Lease::granted(reserve));
                assert!(Lease::granted(reserve).is_some());
                assert_eq!(settled(settle), Some(u64::from(cost)), "the cost in the response");
                before -= cost;
                assert_eq!(remaining(&fixture), before, "{cost} of {RESERVED}, on {version}");
            }
            // A correction that arrives twice is applied once.
            let client = fixture.weir.client();
            for call in fixture.recorder.wait_for(6) {
                if Lease::released(&call).is_some() {
                    client.check(call.request);
                    assert_eq!(remaining(&fixture), before);
                }
            }
        });
    }
}

/// The budget is 3000 tokens and the first call reserves 2000, so a second call cannot reserve
/// 2000. It is denied, takes nothing and is never corrected. When the first call has ended at 300,
/// the next one fits.
#[test]
fn a_denied_reservation_takes_nothing() {
    within_an_hour(|| {
        let fixture = start(NEWEST, &rules(3_000, 100));
        let beside = || {
            assert_eq!(remaining(&fixture), 1_000);
            denied(&fixture);
            assert_eq!(remaining(&fixture), 1_000, "a denied request reserves nothing");
        };
        assert_eq!(chat(&fixture, 300, beside).status, 200);
        let calls = fixture.recorder.wait_for(3);
        assert_eq!(remaining(&fixture), 2_700);
        assert_eq!(Lease::granted(&calls[1]), None);
        assert_eq!(chat(&fixture, 700, || ()).status, 200);
        let calls = fixture.recorder.wait_for(5);
        assert_eq!(calls.iter().filter_map(Lease::released).count(), 2);
        assert_eq!(remaining(&fixture), 2_000);
    });
}

/// One call per hour: the second is denied by that rule, so its reserved tokens return at once
/// (`denied_requests: free`), and Envoy has nothing to correct.
#[test]
fn another_rules_denial_rolls_back_a_reservation() {
    within_an_hour(|| {
        let fixture = start(NEWEST, &rules(10_000, 1));
        assert_eq!(chat(&fixture, 300, || ()).status, 200);
        fixture.recorder.wait_for(2);
        for _ in 0..3 {
            denied(&fixture);
            assert_eq!(remaining(&fixture), 9_700);
        }
        let calls = fixture.recorder.wait_for(5);
        assert!(calls[2..].iter().all(|call| Lease::granted(call).is_none()));
        assert_eq!(calls.iter().filter_map(Lease::released).count(), 1, "the first one's");
    });
}

/// A client that disconnects while the model works leaves its reservation as the charge, because
/// the actual cost is unknown. Envoy has one worker, so it handles the disconnect before the next
/// request.
#[test]
fn an_unknown_cost_stays_as_reserved() {
    within_an_hour(|| {
        let fixture = start(NEWEST, &rules(10_000, 100));
        let gone = stream::send(fixture.envoy().ingress, "/v1/chat", &[("x-user", "anna")]);
        fixture.upstream.wait_for(1);
        drop(gone);
        assert_eq!(chat(&fixture, 300, || fixture.upstream.let_all_go()).status, 200);
        let calls = fixture.recorder.wait_for(3);
        assert_eq!(calls.iter().filter_map(Lease::released).count(), 1, "the second one's");
        assert_eq!(remaining(&fixture), 10_000 - RESERVED - 300);
    });
}
