//! What-if limits in Redis: all instances count on one counter, in every mode of the rule.

use crate::support::http::{get, send};
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{descriptor, request};
use crate::support::schedule::shared;

const RULES: &str = "
domain: d
descriptors:
  - key: exact
    rate_limit: { requests: 100, window: 1000d, shadow: { requests: 4 } }
  - key: leased
    rate_limit: { requests: 100, window: 1000d, mode: leased, shadow: { requests: 4 } }
  - key: synced
    rate_limit: { requests: 100, window: 1000d, mode: synced, shadow: { requests: 4 } }
  - key: full
    rate_limit: { requests: 0, window: 1000d, shadow: { requests: 4 } }
";

/// Requests of each rule. The two instances take turns.
const REQUESTS: u64 = 10;

#[test]
fn instances_share_a_what_if_counter() {
    let _permit = shared();
    let cluster = Cluster::start();
    let url = cluster_url(&cluster);
    let weirs = [(); 2].map(|()| over(&url, RULES).store_timeout("20s").start());
    weirs.iter().for_each(ready);
    let clients = weirs.each_ref().map(|weir| weir.client());
    for (rule, code) in [("exact", 1), ("leased", 1), ("synced", 1), ("full", 2)] {
        for number in 0..REQUESTS {
            let client = &clients[number as usize % 2];
            let answer = client.check(request("d", vec![descriptor(&[(rule, "x")])]));
            assert_eq!(answer.overall_code, code, "{rule}");
        }
        let path = format!("/counters?domain=d&descriptor={rule}=x");
        let what_if = get(weirs[0].admin, &path).json()["what_if"].clone();
        // A denial from memory counts here too. Denied hits count where those of the rule do.
        let used = if matches!(rule, "leased" | "synced") { 4 } else { REQUESTS };
        assert_eq!(what_if["tiers"][0]["used"], used, "{rule}: {what_if}");
        assert_eq!(what_if["denied"], true, "{rule}: {what_if}");
        let sum = |outcome: &str| -> u64 {
            let labels = [format!("rule=\"{rule}\""), format!("outcome=\"{outcome}\"")];
            let labels = labels.each_ref().map(String::as_str);
            weirs.iter().map(|weir| weir.metric("weir_what_if_hits_total", &labels)).sum()
        };
        assert_eq!([sum("within"), sum("over")], [4, REQUESTS - 4], "{rule}");
        assert_eq!(send(weirs[1].admin, "DELETE", &path, &[], b"").status, 200);
        let shown = get(weirs[0].admin, &path).json();
        assert_eq!(shown["what_if"]["tiers"][0]["used"], 0, "{shown}");
    }
}
