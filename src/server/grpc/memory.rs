//! Memory: the bound on what clients make the process hold.

pub(super) mod address;
pub(in crate::server) mod budget;
mod buffers;
pub(super) mod call;
pub(in crate::server) mod connection;
pub(super) mod inbox;
