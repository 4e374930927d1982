//! Real Redis processes on loopback for tests, and the faults that can befall them.
//!
//! Every process ends with the test, also when the test is killed: a shell watches over it and ends
//! it as soon as the pipe from the test closes. Readiness is a line of the server's
//! log or an answer, never a length of time.

pub(crate) mod cluster;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod resp;
pub(crate) mod sentinel;
pub(crate) mod server;
