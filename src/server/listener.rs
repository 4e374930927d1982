//! Listeners: binding, the accept loop, limits per address, assignment to workers, TLS, metrics.

pub(super) mod accept;
pub(super) mod balance;
pub(super) mod bind;
pub(super) mod metrics;
pub(super) mod per_ip;
pub(super) mod tls;
