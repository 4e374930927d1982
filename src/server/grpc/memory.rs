//! Memory: the bound on what clients make the process hold.

pub(in crate::server) mod budget;
pub(super) mod call;
pub(in crate::server) mod connection;
pub(super) mod inbox;
