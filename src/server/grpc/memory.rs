//! Memory: the bound on what clients make the process hold, and on what is read from them.

pub(in crate::server) mod budget;
pub(super) mod call;
pub(in crate::server) mod connection;
pub(super) mod inbox;
pub(super) mod read;
