//! A budget of money for language models through Envoy: input and output tokens of several models have
//! different prices and one counter.

use std::thread;

use super::fixture::{Fixture, Lease};
use super::forms::Form;
use crate::support::envoy::recorder::Call;
use crate::support::envoy::{NEWEST, OLDEST};
use crate::support::http::{self, Response};
use crate::support::rls::RateLimitDescriptor;
use crate::support::window_edge::within_an_hour;

const EXAMPLE: &str = include_str!("../../../examples/envoy/llm-budget.yaml");
const RULES: &str = include_str!("../../../examples/rules/llm-budget.yaml");

/// The rules of the example with another limit, in millionths of a dollar.
fn rules(limit: u64) -> String {
    let rules = RULES.replace("requests: 50000000", &format!("requests: {limit}"));
    assert_ne!(rules, RULES, "the example has another limit");
    rules
}

fn start(version: &str, limit: u64) -> Fixture {
    Fixture::start(&Form { version, example: EXAMPLE }, &rules(limit))
}

/// A call of a model: its name, and the tokens of its response.
struct ModelCall {
    model: &'static str,
    input: u64,
    output: u64,
}

/// What the customer has spent, in millionths of a dollar.
fn spent(fixture: &Fixture) -> u64 {
    let path = "/counters?domain=llm-budget&descriptor=customer=acme,price=any";
    let shown = http::get(fixture.weir.admin, path).json();
    shown["tiers"][0]["used"].as_u64().unwrap_or_else(|| panic!("{shown}"))
}

/// Completes a call of the customer. `meanwhile` runs before it ends.
fn chat(fixture: &Fixture, call: &ModelCall, meanwhile: impl FnOnce()) -> Response {
    let ingress = fixture.envoy().ingress;
    let before = fixture.upstream.arrived();
    let (input, output) = (call.input.to_string(), call.output.to_string());
    thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let headers = [
                ("x-customer", "acme"),
                ("x-model", call.model),
                ("x-prompt-tokens", input.as_str()),
                ("x-completion-tokens", output.as_str()),
                // Envoy overwrites what a client sends.
                ("x-price-output", "gpt-small/input"),
            ];
            http::get_with(ingress, "/v1/chat", &headers)
        });
        fixture.upstream.wait_for(before + 1);
        meanwhile();
        fixture.upstream.let_one_go();
        calling.join().expect("the client gets a response")
    })
}

/// The price and the hits of a descriptor.
fn price(descriptor: &RateLimitDescriptor) -> (&str, u64) {
    let entry = descriptor.entries.iter().find(|entry| entry.key == "price");
    let hits = descriptor.hits_addend.as_ref().expect("Envoy sends the tokens").value;
    (entry.expect("an entry with the price").value.as_str(), hits)
}

/// The price and the hits of each descriptor of a call.
fn prices(call: &Call) -> Vec<(&str, u64)> {
    call.request.descriptors.iter().map(price).collect()
}

/// Each call reserves 1000 tokens of input and 2000 of output, and is settled to its tokens.
#[test]
fn models_and_kinds_of_tokens_have_their_prices() {
    let calls = [
        (ModelCall { model: "gpt-large", input: 300, output: 120 }, 22_500, 750 + 1_200),
        // 49.95 and 46.2 are rounded up.
        (ModelCall { model: "gpt-small", input: 333, output: 77 }, 1_350, 50 + 47),
        // More than was reserved.
        (ModelCall { model: "gpt-large", input: 9_000, output: 4_001 }, 22_500, 22_500 + 40_010),
        (ModelCall { model: "of-tomorrow", input: 10, output: 20 }, 30_000, 300),
        (ModelCall { model: "gpt-large", input: 0, output: 0 }, 22_500, 0),
    ];
    for version in [NEWEST, OLDEST] {
        within_an_hour(|| {
            let fixture = start(version, 9_007_199_254_740_991);
            let mut before = 0;
            for (number, (call, reserved, cost)) in (1..).zip(&calls) {
                let during = || assert_eq!(spent(&fixture), before + reserved, "{}", call.model);
                assert_eq!(chat(&fixture, call, during).status, 200);
                let recorded = fixture.recorder.wait_for(2 * number);
                let (reserve, settle) = (&recorded[2 * number - 2], &recorded[2 * number - 1]);
                let model = call.model;
                let (input, output) = (format!("{model}/input"), format!("{model}/output"));
                assert_eq!(prices(reserve), [(&*input, 1_000), (&*output, 2_000)]);
                assert_eq!(prices(settle), [(&*input, call.input), (&*output, call.output)]);
                assert!(Lease::granted(reserve).is_some());
                assert_eq!(Lease::released(settle), Lease::granted(reserve));
                before += cost;
                assert_eq!(spent(&fixture), before, "{model} on {version}");
            }
            // A settlement that arrives twice is applied once.
            let client = fixture.weir.client();
            for call in fixture.recorder.wait_for(2 * calls.len()) {
                if Lease::released(&call).is_some() {
                    client.check(call.request);
                    assert_eq!(spent(&fixture), before);
                }
            }
            let entries = [("customer", "acme"), ("price", "any")];
            let status = fixture.look_at("llm-budget", &entries);
            assert_eq!(status.limit_remaining, u32::MAX, "the rest is over 32 bits");
        });
    }
}

/// The budget has room for the input of a second call and not for its output, so the call takes
/// nothing. A smaller model is still affordable, and so is the next call when the first one has ended.
#[test]
fn a_denied_call_takes_nothing_of_the_budget() {
    within_an_hour(|| {
        let fixture = start(NEWEST, 30_000);
        let large = ModelCall { model: "gpt-large", input: 300, output: 120 };
        let beside = || {
            assert_eq!(spent(&fixture), 22_500);
            let headers = [("x-customer", "acme"), ("x-model", "gpt-large")];
            let denied = http::get_with(fixture.envoy().ingress, "/v1/chat", &headers);
            assert_eq!(denied.status, 429);
            assert_eq!(spent(&fixture), 22_500, "its reservation of 2500 is returned");
        };
        assert_eq!(chat(&fixture, &large, beside).status, 200);
        let calls = fixture.recorder.wait_for(3);
        assert_eq!(Lease::granted(&calls[1]), None);
        assert_eq!(spent(&fixture), 1_950);
        let all = ModelCall { model: "gpt-large", input: 9_220, output: 500 };
        assert_eq!(chat(&fixture, &all, || ()).status, 200);
        fixture.recorder.wait_for(5);
        assert_eq!(spent(&fixture), 30_000, "the whole budget");
        let headers = [("x-customer", "acme"), ("x-model", "gpt-small")];
        let denied = http::get_with(fixture.envoy().ingress, "/v1/chat", &headers);
        assert_eq!(denied.status, 429, "the cheapest call too");
    });
}
