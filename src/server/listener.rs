//! Listening sockets: bind, accept, limit the connections per address, and assign them to workers.

pub(super) mod accept;
pub(super) mod acceptor;
pub(super) mod balance;
pub(super) mod bind;
pub(super) mod per_ip;
