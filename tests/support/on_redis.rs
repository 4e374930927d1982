//! weir processes that count in Redis.

use crate::support::http;
use crate::support::redis::cluster::Cluster;
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};

/// The URL of a cluster, with two of its nodes.
pub(crate) fn cluster_url(cluster: &Cluster) -> String {
    let [first, second] = [&cluster.nodes[0], &cluster.nodes[1]].map(|node| node.address());
    format!("redis-cluster://{first}?node={second}")
}

/// A process that counts in the Redis at `url`, not started yet. Its responses carry the decision
/// header, and it is ready only when it has reached Redis.
pub(crate) fn over(url: &str, rules: &str) -> Setup {
    Weir::setup()
        .rules("rules.yaml", rules)
        .env("WEIR__STORE__KIND", "redis")
        .env("WEIR__REDIS__URL", url)
        .env("WEIR__RESPONSE__DECISION_HEADER", "true")
        .env("WEIR__READYZ__REQUIRE_STORE", "true")
        .env("WEIR__DRAIN__DELAY", "0s")
}

/// Waits until `/readyz` reports that Redis is reached.
pub(crate) fn ready(weir: &Weir) {
    until("weir reaches Redis", || http::get(weir.http, "/readyz").status == 200);
}
