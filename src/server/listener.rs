//! Listeners: binding, the accept loop, client addresses, connection slots, assignment to workers, TLS.

pub(super) mod accept;
pub(super) mod balance;
pub(super) mod bind;
pub(super) mod slots;
pub(super) mod tls;
