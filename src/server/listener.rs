//! Listeners: bind, accept, limit the connections per address, assign them to workers, TLS, and
//! the metrics.

pub(super) mod accept;
pub(super) mod balance;
pub(super) mod bind;
pub(super) mod metrics;
pub(super) mod per_ip;
pub(super) mod tls;
