//! Quotas of Envoy AI Gateway: its own node, plain text, limits in quota mode, and tokens that Envoy
//! charges after the response.

use envoy_types::pb::google::protobuf::Any;

use super::HOUR;
use crate::support::ads::{Ads, RateLimitDescriptor, limited, node, rules};
use crate::support::rls::{Client, Code, RateLimitRequest, costing, descriptor, request};
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

/// The node that the controller knows, and the only domain of quotas.
const NODE: &str = "envoy-ai-gateway-ratelimit";
const DOMAIN: &str = "ai-gateway-quota";

const BACKEND: (&str, &str) = ("backend_name", "default/openai");
const MODEL: &str = "model_name_override";

/// A limit in quota mode for a value of a key; an empty value is any value.
fn quota(key: &str, value: &str, tokens: u32) -> RateLimitDescriptor {
    let value = value.to_owned();
    RateLimitDescriptor { value, quota_mode: true, ..limited(key, HOUR, tokens) }
}

/// A backend with a quota per user and one for all users of one model, a quota of another model, and
/// one of all models without their own.
fn quotas() -> Vec<Any> {
    let of_users = quota("rule-0-match-0", "", 10);
    let of_all = quota("rule-1-match--1", "rule-1-match--1", 100);
    let models = vec![
        node(MODEL, "large", vec![of_users, of_all]),
        quota(MODEL, "small", 20),
        quota(MODEL, "", 50),
    ];
    vec![rules(DOMAIN, vec![node(BACKEND.0, BACKEND.1, models)])]
}

/// What Envoy sends for a request to a model: the backend and the model, then the selectors of its rules.
/// After the response it sends the same with the number of tokens.
fn call(model: &str, user: &str, tokens: u64) -> RateLimitRequest {
    let base = [BACKEND, (MODEL, model)];
    let mut chains = vec![base.to_vec()];
    if model == "large" {
        for selector in [("rule-0-match-0", user), ("rule-1-match--1", "rule-1-match--1")] {
            chains.push([&base[..], &[selector]].concat());
        }
    }
    let descriptors = chains.iter().map(|chain| costing(tokens, descriptor(chain)));
    request(DOMAIN, descriptors.collect())
}

fn started(ads: &Ads) -> (Weir, Client) {
    let weir = Weir::image()
        .env("CONFIG_TYPE", "GRPC_XDS_SOTW")
        .env("CONFIG_GRPC_XDS_SERVER_URL", &ads.address.to_string())
        .env("CONFIG_GRPC_XDS_NODE_ID", NODE)
        .env("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")
        .start();
    ads.set("1", quotas());
    assert_eq!(ads.next_request().request.node.expect("a node").id, NODE);
    assert!(ads.answer().error_detail.is_none());
    let client = weir.client();
    (weir, client)
}

/// Rows of a model, a user, tokens and whether the request passes. 0 tokens only look. A request is denied
/// when all its quotas are over.
#[test]
fn quotas_deny_when_all_of_them_are_over() {
    let table = [
        ("large", "ann", 0, true),
        ("large", "ann", 10, true),
        ("large", "ann", 0, true),
        // The user has 11 of 10, and all users 11 of 100.
        ("large", "ann", 1, true),
        ("large", "ann", 0, true),
        // 101 of 100.
        ("large", "ann", 90, false),
        ("large", "ann", 0, false),
        // Another user has room.
        ("large", "bob", 0, true),
        ("large", "bob", 11, false),
        // One quota alone is a limit. A charge over the rest counts.
        ("small", "ann", 15, true),
        ("small", "ann", 15, false),
        ("small", "bob", 0, false),
        // Models without their own quota share one per name.
        ("other", "ann", 50, true),
        ("other", "ann", 1, false),
        ("another", "ann", 50, true),
    ];
    within_an_hour(|| {
        let ads = Ads::for_node(NODE);
        let (_weir, client) = started(&ads);
        for (row, (model, user, tokens, passes)) in table.into_iter().enumerate() {
            let code = client.check(call(model, user, tokens)).overall_code();
            let expected = if passes { Code::Ok } else { Code::OverLimit };
            assert_eq!(code, expected, "row {row}: {model}, {user}, {tokens} tokens");
        }
    });
}

/// Envoy sends the tokens when the response has ended, so a charge may be much larger than the rest.
#[test]
fn a_large_charge_is_counted_exactly() {
    within_an_hour(|| {
        let ads = Ads::for_node(NODE);
        let (_weir, client) = started(&ads);
        client.check(call("large", "ann", 1_000_000));
        let statuses = client.check(call("large", "ann", 0)).statuses;
        let remaining: Vec<u32> = statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!(remaining, [0, 0, 0]);
        assert!(statuses[0].current_limit.is_none(), "the model itself has no limit");
        let limits = statuses.iter().filter_map(|status| status.current_limit.as_ref());
        let limits: Vec<u32> = limits.map(|limit| limit.requests_per_unit).collect();
        assert_eq!(limits, [10, 100]);
    });
}
