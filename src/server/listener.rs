//! Listeners: binding, the accept loop, limits per address, assignment to workers, TLS.

pub(super) mod accept;
pub(super) mod balance;
pub(super) mod bind;
pub(super) mod per_peer;
pub(super) mod tls;
