//! Limits of 2^53 - 1 on a Redis Cluster: two instances count to the last hit, in requests of 2^52.

use crate::support::http::get;
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{Client, Code, RateLimitDescriptor, costing, descriptor, request};
use crate::support::schedule::shared;
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

use super::slots::lease;

/// Windows that end when an hour ends (see [`within_an_hour`]).
const RULES: &str = r#"
domain: d
descriptors:
  - key: month
    rate_limit:
      requests: 9007199254740991
      window: { calendar: month, zone: Europe/Zurich }
      count_denied: false
  - key: leased
    rate_limit:
      requests: 9007199254740991
      window: { calendar: month, zone: Europe/Zurich }
      mode: leased
  - key: tiers
    rate_limit:
      count_denied: false
      tiers:
        - { requests: 9007199254740991, window: { calendar: month, zone: Europe/Zurich } }
        - { requests: 9007199254740991, window: 7d }
  - key: counted
    rate_limit: { requests: 9007199254740991, window: { calendar: month, zone: Europe/Zurich } }
  - key: tokens
    rate_limit:
      requests: 9007199254740991
      window: { calendar: month, zone: Europe/Zurich }
      count_denied: false
      reserve: { hold: 10m }
      cost: { by: tokens, factors: { input: "5/2", output: 10 } }
  - key: model
    value: "*"
    share_threshold: true
    rate_limit:
      requests: 9007199254740991
      window: { calendar: month, zone: Europe/Zurich }
      count_denied: false
      cost: { by: model, factors: { large: 4, small: "1/2" } }
"#;

const MAX: u64 = (1 << 53) - 1;
const HALF: u64 = 1 << 52;

/// Two instances over one cluster, and a connection to each.
struct Instances {
    weirs: [Weir; 2],
    clients: [Client; 2],
}

impl Instances {
    fn over(cluster: &Cluster) -> Instances {
        let url = cluster_url(cluster);
        let weirs = ["0s", "5m"].map(|offset| {
            over(&url, RULES).store_timeout("20s").env("WEIR__CLOCK__OFFSET", offset).start()
        });
        weirs.iter().for_each(ready);
        let clients = weirs.each_ref().map(Weir::client);
        Instances { weirs, clients }
    }

    /// Whether hits pass on instance number `index`.
    fn passes(&self, index: usize, descriptor: RateLimitDescriptor) -> bool {
        let answer = self.clients[index].check(request("d", vec![descriptor]));
        answer.overall_code == Code::Ok as i32
    }

    /// The used hits of each tier of a counter, in Redis.
    fn used(&self, descriptor: &str) -> Vec<u64> {
        let path = format!("/counters?domain=d&descriptor={descriptor}");
        let shown = get(self.weirs[0].admin, &path).json();
        assert_eq!(shown["store"], "redis", "{shown}");
        let tiers = shown["tiers"].as_array().expect("tiers").iter();
        tiers.map(|tier| tier["used"].as_u64().expect("a whole number")).collect()
    }
}

fn back(descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..descriptor }
}

#[test]
fn two_instances_count_to_the_last_hit() {
    let _permit = shared();
    within_an_hour(|| {
        let cluster = Cluster::start();
        let both = Instances::over(&cluster);
        for (key, tiers) in [("month", 1), ("leased", 1), ("tiers", 2)] {
            let of = |hits| costing(hits, descriptor(&[(key, "x")]));
            let used = || both.used(&format!("{key}=x"));
            assert!(both.passes(0, of(HALF)), "{key}");
            assert_eq!(used(), vec![HALF; tiers], "{key}");
            assert!(both.passes(1, of(HALF - 2)), "{key}");
            assert!(!both.passes(0, of(2)), "{key}: one hit is left");
            assert!(both.passes(1, of(1)), "{key}: the last hit");
            assert_eq!(used(), vec![MAX; tiers], "{key}");
            for hits in [1, HALF, MAX] {
                assert!(!both.passes(0, of(hits)), "{key}");
            }
            assert_eq!(used(), vec![MAX; tiers], "{key}: denied hits do not count");
            // An instance keeps some of the hits that are given back to a leased rule.
            if key != "leased" {
                both.passes(1, back(of(HALF)));
                assert_eq!(used(), vec![HALF - 1; tiers], "{key}");
            }
        }
        let of = |hits| costing(hits, descriptor(&[("counted", "x")]));
        assert!(both.passes(0, of(HALF)) && both.passes(1, of(HALF - 1)));
        for index in [0, 1, 0, 1] {
            assert!(!both.passes(index, of(HALF)));
        }
        assert_eq!(both.used("counted=x"), [MAX], "no store counts more");
    });
}

/// Both instances weigh alike, and the counter has the weighted hits.
#[test]
fn costs_are_counted_together() {
    let _permit = shared();
    within_an_hour(|| {
        let cluster = Cluster::start();
        let both = Instances::over(&cluster);
        let of = |model, hits| costing(hits, descriptor(&[("model", model)]));
        assert!(both.passes(0, of("small", HALF)), "2^51");
        assert!(both.passes(1, of("large", 1 << 50)), "2^52");
        assert_eq!(both.used("model=other"), [(1 << 51) + HALF], "one counter for all models");
        assert!(!both.passes(0, of("large", 1 << 49)), "2^51 more are one hit too many");
        assert!(both.passes(0, of("small", HALF - 2)));
        assert_eq!(both.used("model=other"), [MAX]);
        assert!(!both.passes(1, of("small", 1)));
        both.passes(1, back(of("small", 3)));
        assert_eq!(both.used("model=other"), [MAX - 1], "1.5 is rounded down");
    });
}

/// A reservation is settled by another instance, with more hits than fit into 32 bits.
#[test]
fn a_large_reservation_is_settled_once() {
    let _permit = shared();
    within_an_hour(|| {
        let cluster = Cluster::start();
        let both = Instances::over(&cluster);
        let of = |kind, hits| costing(hits, descriptor(&[("tokens", kind)]));
        let reserved = both.clients[0].check(request("d", vec![of("input", 2_000_000_001)]));
        let id = lease(&reserved).expect("a lease");
        assert_eq!(both.used("tokens=input"), [5_000_000_003]);
        for _ in 0..2 {
            let entries = [("tokens", "input"), ("lease", id.as_str())];
            assert!(both.passes(1, costing(3_000_000_000_001, descriptor(&entries))));
            assert_eq!(both.used("tokens=input"), [7_500_000_000_003]);
        }
        assert_eq!(both.used("tokens=output"), [0], "a counter per value");
        assert!(both.passes(0, of("output", 900_719_925_474_099)));
        assert_eq!(both.used("tokens=output"), [MAX - 1]);
        assert!(!both.passes(1, of("output", 1)));
    });
}
