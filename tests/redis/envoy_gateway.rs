//! The deployment of Envoy Gateway with only its environment: rules by xDS, counted in Redis.

use crate::support::ads::{Ads, limited, node, rules};
use crate::support::certificates::{Certificates, trusting};
use crate::support::envoy_gateway::deployment;
use crate::support::redis::server::Server;
use crate::support::rls::{Client, Code, costing, descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

const DOMAIN: &str = "default/eg/http";

/// A route, as the key of its rules.
const ROUTE: &str = "httproute/default/plain/rule/0/match/0/plain_test";

/// The selector of its rule: a header of type Distinct.
const HEADER: &str = "rule-0-match-0";

/// The unit of an hour.
const HOUR: i32 = 3;

/// The decision about hits of a user; `None` after a failed call.
fn code(client: &Client, user: &str, hits: u64) -> Option<Code> {
    let entries = [(ROUTE, ROUTE), (HEADER, user)];
    let call = request(DOMAIN, vec![costing(hits, descriptor(&entries))]);
    client.try_check(call).ok().map(|answer| answer.overall_code())
}

/// A pod that counts in Redis.
fn started(ads: &Ads, certificates: &Certificates, redis: &Server) -> (Weir, Client) {
    let weir = deployment(ads, certificates, &redis.address().to_string()).start();
    // The name in the certificate of the service.
    let tls = trusting(certificates).domain_name("weir");
    let client = Client::over_tls(weir.grpc, tls).expect("a connection");
    // Without rules or without Redis, every call passes.
    until("Redis decides by the rules", || code(&client, "first", 4) == Some(Code::OverLimit));
    (weir, client)
}

#[test]
fn pods_of_envoy_gateway_share_their_counters() {
    let _permit = exclusive();
    within_an_hour(|| {
        let redis = Server::listening(&[]);
        let certificates = Certificates::new();
        let ads = Ads::with_tls(&certificates);
        ads.set("1", vec![rules(DOMAIN, vec![node(ROUTE, ROUTE, vec![limited(HEADER, HOUR, 3)])])]);
        let (mut one, client) = started(&ads, &certificates, &redis);
        let codes: Vec<_> = (0..4).map(|_| code(&client, "ann", 1)).collect();
        let [ok, over] = [Code::Ok, Code::OverLimit].map(Some);
        assert_eq!(codes, [ok, ok, ok, over]);
        let (mut other, client) = started(&ads, &certificates, &redis);
        assert_eq!(code(&client, "ann", 1), over);
        assert_eq!(code(&client, "bob", 1), ok);
        for weir in [&mut one, &mut other] {
            assert!(weir.process().is_alive(), "it writes to a file");
        }
    });
}
