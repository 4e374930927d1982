//! weir processes over one Redis.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::support::http;
use crate::support::redis::cluster::Cluster;
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};

/// One test at a time: each brings processes of its own, and their deadlines are real.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a cluster is, told by two of its nodes.
pub(crate) fn cluster_url(cluster: &Cluster) -> String {
    let [first, second] = [&cluster.nodes[0], &cluster.nodes[1]].map(|node| node.address());
    format!("redis-cluster://{first}?node={second}")
}

/// A process over `url`, not started yet. It shows how every answer came about, and is ready only
/// when Redis is there.
pub(crate) fn over(url: &str, rules: &str) -> Setup {
    Weir::setup()
        .rules("rules.yaml", rules)
        .env("WEIR__STORE__KIND", "redis")
        .env("WEIR__REDIS__URL", url)
        .env("WEIR__ANSWER__DECISION_HEADER", "true")
        .env("WEIR__READYZ__REQUIRE_STORE", "true")
        .env("WEIR__DRAIN__DELAY", "0s")
}

/// Waits until Redis is reached, as `/readyz` tells.
pub(crate) fn ready(weir: &Weir) {
    until("weir reaches Redis", || status(weir.http) == 200);
}

fn status(http: SocketAddr) -> u16 {
    http::get(http, "/readyz").status
}
