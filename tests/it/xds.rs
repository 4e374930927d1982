//! Rules by xDS: a scripted server sends them to the real binary.

use std::time::Duration;

use crate::support::ads::{Ads, NODE, TYPE_URL, limited, named_rules, rules};
use crate::support::http::get;
use crate::support::rls::{Client, costing, descriptor, request};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir, write};

mod ai_gateway;
mod answers;
mod cache;
mod envoy_gateway;
mod faults;
mod gateway_routes;
mod readiness;
mod tls;

/// The unit of an hour.
const HOUR: i32 = 3;

/// A weir whose rules come from the server at `address`.
fn setup(address: &str) -> Setup {
    Weir::setup()
        .rules_of_settings()
        .env("WEIR__RULES__XDS__SERVER", address)
        .env("WEIR__RULES__XDS__NODE_ID", NODE)
        .env("WEIR__RULES__XDS__BACKOFF_INITIAL", "100ms")
        .env("WEIR__RULES__XDS__BACKOFF_MAX", "200ms")
}

fn of(ads: &Ads) -> Setup {
    setup(&ads.address.to_string())
}

/// The active limit of a key of domain `a`; 0 without one.
fn limit(client: &Client, key: &str) -> u32 {
    let answer = client.check(request("a", vec![costing(0, descriptor(&[(key, "x")]))]));
    answer.statuses[0].current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit)
}

fn until_limit(client: &Client, limit_wanted: u32) {
    until(&format!("a limit of {limit_wanted}"), || limit(client, "k") == limit_wanted);
}

/// A domain `a` with one limit for key `k`.
fn one_limit(requests: u32) -> Vec<envoy_types::pb::google::protobuf::Any> {
    vec![rules("a", vec![limited("k", HOUR, requests)])]
}

fn is_ready(weir: &Weir) -> bool {
    get(weir.http, "/readyz").status == 200
}

#[test]
fn each_request_has_the_node_and_the_type() {
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let weir = of(&ads)
        .env("WEIR__RULES__XDS__NODE_METADATA", "zone=a,empty=")
        .env("WEIR__RULES__XDS__HEADERS", "x-token=hunter2")
        .start();
    until_limit(&weir.client(), 5);
    ads.set("2", one_limit(6));
    for (index, (version, nonce)) in [("", ""), ("1", "1"), ("2", "2")].into_iter().enumerate() {
        let seen = ads.next_request();
        let request = &seen.request;
        assert_eq!(request.version_info, version, "request {index}");
        assert_eq!(request.response_nonce, nonce, "request {index}");
        assert_eq!(request.type_url, TYPE_URL);
        assert!(request.resource_names.is_empty() && request.error_detail.is_none());
        let node = request.node.as_ref().expect("a node");
        assert_eq!(node.id, NODE);
        let metadata = &node.metadata.as_ref().expect("metadata").fields;
        assert_eq!(metadata.len(), 2, "{metadata:?}");
        assert_eq!(seen.token.as_deref(), Some("hunter2"));
    }
    until_limit(&weir.client(), 6);
    assert!(!get(weir.admin, "/settings").body.contains("hunter2"));
}

/// The server restarts with changed rules and counts its versions from 1 again.
#[test]
fn rules_follow_a_restarted_server() {
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let mut weir = of(&ads).start();
    let client = weir.client();
    until_limit(&client, 5);
    until("the instance is ready", || is_ready(&weir));
    let address = ads.address;
    drop(ads);
    until("the lost server is noticed", || weir.metric("weir_xds_connected", &[]) == 0);
    weir.process().wait_for("that it has no server", |line| {
        line.contains("no stream from the xDS server").then_some(())
    });
    assert_eq!(limit(&client, "k"), 5, "the rules stay");
    assert!(is_ready(&weir));
    let ads = Ads::again_at(address);
    ads.set("1", one_limit(7));
    until_limit(&client, 7);
    let first = ads.next_request().request;
    assert_eq!((first.version_info.as_str(), first.response_nonce.as_str()), ("", ""));
    assert_eq!(weir.metric("weir_xds_connected", &[]), 1);
    weir.process().wait_for("that rules come again", |line| {
        line.contains("xDS server sends rules again").then_some(())
    });
}

/// A server without rules for this node sends nothing. weir waits, and is not ready.
#[test]
fn a_silent_server_shows_in_readiness_and_metrics() {
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let mut weir = of(&ads)
        .env("WEIR__RULES__XDS__NODE_ID", "unknown")
        .env("WEIR__RULES__XDS__CONNECT_TIMEOUT", "1s")
        .start();
    assert_eq!(ads.next_request().request.node.expect("a node").id, "unknown");
    until("the connection is open", || weir.metric("weir_xds_connected", &[]) == 1);
    assert!(!is_ready(&weir));
    assert_eq!(get(weir.http, "/livez").status, 200);
    assert_eq!(weir.metric("weir_xds_updates_total", &[]), 0);
    wait_for_silence(&mut weir);
}

/// The line comes after three connect timeouts.
fn wait_for_silence(weir: &mut Weir) {
    weir.process().wait_for("that the server is silent", |line| {
        line.contains("xDS server is silent").then_some(())
    });
}

#[test]
fn readiness_waits_for_the_first_rules() {
    let ads = Ads::start();
    for (force, before) in [("false", false), ("true", true)] {
        let weir = of(&ads).env("FORCE_START_WITHOUT_INITIAL_CONFIG", force).start();
        assert_eq!(is_ready(&weir), before, "without rules, {force}");
        ads.set("1", Vec::new());
        until("ready with an empty list", || is_ready(&weir));
    }
    // An empty list is a configuration without domains.
    let name = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED";
    let weir = of(&ads).env(name, "true").start();
    until("the list has come", || weir.metric("weir_xds_updates_total", &[]) == 1);
    assert!(!is_ready(&weir));
    ads.set("2", one_limit(5));
    until("ready with a domain", || is_ready(&weir));
    ads.set("3", Vec::new());
    until("not ready without domains again", || !is_ready(&weir));
}

/// Rules of files are no substitute for those of the server.
#[test]
fn rules_of_files_do_not_make_ready() {
    let ads = Ads::start();
    ads.set("1", vec![named_rules("x", "", Vec::new())]);
    let weir = Weir::setup()
        .rules("f.yaml", "domain: f\n")
        .env("WEIR__RULES__XDS__SERVER", &ads.address.to_string())
        .env("WEIR__RULES__XDS__NODE_ID", NODE)
        .start();
    assert!(ads.answer().error_detail.is_some());
    until("the rejection is known", || weir.metric("weir_xds_nacks_total", &[]) == 1);
    assert!(!is_ready(&weir));
    ads.set("2", one_limit(5));
    until("ready with rules of the server", || is_ready(&weir));
}

/// Rules of files and of a server are active at the same time.
#[test]
fn a_server_adds_to_rule_files() {
    let ads = Ads::start();
    let file = "domain: f\ndescriptors: [{ key: k, rate_limit: { unit: hour, \
                requests_per_unit: 3 } }]\n";
    let setup = Weir::setup().rules("f.yaml", file);
    let weir = setup
        .env("WEIR__RULES__XDS__SERVER", &ads.address.to_string())
        .env("WEIR__RULES__XDS__NODE_ID", NODE)
        .start();
    let client = weir.client();
    ads.set("1", one_limit(5));
    until_limit(&client, 5);
    assert_eq!(client.remaining("f", &[("k", "x")]), 3);
    ads.set("2", Vec::new());
    until_limit(&client, 0);
    assert_eq!(client.remaining("f", &[("k", "x")]), 3);
}

/// Neither of both undoes the other.
#[test]
fn reloads_and_responses_happen_at_once() {
    let ads = Ads::start();
    let file = |limit: u32| {
        let limit = format!("{{ unit: hour, requests_per_unit: {limit} }}");
        format!("domain: f\ndescriptors: [{{ key: k, rate_limit: {limit} }}]\n")
    };
    let setup = Weir::setup().rules("f.yaml", &file(1));
    let mut weir = setup
        .env("WEIR__RULES__XDS__SERVER", &ads.address.to_string())
        .env("WEIR__RULES__XDS__NODE_ID", NODE)
        .start();
    let client = weir.client();
    let path = weir.rules_folder().join("f.yaml");
    for round in 2..=20 {
        write(&path, &file(round));
        ads.set(&round.to_string(), one_limit(round));
        weir.process().signal("HUP");
        until_limit(&client, round);
        until("the file is active", || client.remaining("f", &[("k", "x")]) == round);
        assert_eq!(limit(&client, "k"), round);
    }
}

/// The operator adds the domain to the files first, and then removes it from the server.
#[test]
fn a_domain_moves_from_the_server_to_a_file() {
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let weir = Weir::setup()
        .rules("f.yaml", "domain: f\n")
        .env("WEIR__RULES__XDS__SERVER", &ads.address.to_string())
        .env("WEIR__RULES__XDS__NODE_ID", NODE)
        .start();
    let client = weir.client();
    until_limit(&client, 5);
    assert!(ads.answer().error_detail.is_none());
    let file = "domain: a\ndescriptors: [{ key: k, rate_limit: { unit: hour, \
                requests_per_unit: 7 } }]\n";
    write(&weir.rules_folder().join("a.yaml"), file);
    let is_reloaded = || weir.metric("weir_rules_last_reload_successful", &[]) == 1;
    until("the file is refused", || !is_reloaded());
    let error = get(weir.admin, "/rules").json()["last_error"].to_string();
    assert!(error.contains("the resource xds:a defines domain 'a' too"), "{error}");
    assert_eq!(limit(&client, "k"), 5);
    ads.set("2", Vec::new());
    assert!(ads.answer().error_detail.is_none());
    assert_eq!(limit(&client, "k"), 7, "the file is active before the answer");
    assert!(is_reloaded());
    ads.set("3", one_limit(5));
    let error = ads.answer().error_detail.expect("a rejection").message;
    assert!(error.contains("duplicate domain 'a' in config file: the file "), "{error}");
    assert_eq!(limit(&client, "k"), 7);
}

#[test]
fn sigterm_ends_a_process_with_an_open_stream() {
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let mut weir = of(&ads).env("WEIR__DRAIN__DELAY", "0s").start();
    until_limit(&weir.client(), 5);
    weir.process().terminate();
    assert!(weir.process().wait_for_exit().success());
}

/// 5,000 resources are a message of more than 4 MiB, the default limit of gRPC.
#[test]
fn a_large_response_is_accepted() {
    const RESOURCES: usize = 5_000;
    let ads = Ads::start();
    let long = "x".repeat(900);
    let resources = (0..RESOURCES).map(|index| {
        let (name, domain) = (format!("{long}/{index}"), format!("d{index}"));
        named_rules(&name, &domain, vec![limited("k", HOUR, 5)])
    });
    ads.set("1", resources.chain(one_limit(5)).collect());
    let weir = of(&ads).start();
    until_limit(&weir.client(), 5);
    assert_eq!(weir.metric("weir_rules", &[]), RESOURCES as u64 + 1);
    assert!(ads.answer().error_detail.is_none());

    // A smaller limit ends each stream. The next ones are not opened in a tight loop.
    let ads = Ads::start();
    let weir = of(&ads)
        .env("WEIR__RULES__XDS__MAX_MESSAGE_BYTES", "100000")
        .env("WEIR__RULES__XDS__BACKOFF_MAX", "10s")
        .start();
    ads.set("1", one_limit(5));
    let client = weir.client();
    until_limit(&client, 5);
    ads.set("2", vec![named_rules(&long.repeat(200), "a", vec![limited("k", HOUR, 6)])]);
    until("the stream fails", || {
        weir.metric("weir_xds_stream_ends_total", &[r#"reason="failed""#]) > 1
    });
    assert_eq!(limit(&client, "k"), 5);
    assert!(ads.during(Duration::from_secs(2)).len() < 12);
}
