//! Real Redis processes on loopback, and the faults that tests inject.
//!
//! Every process ends with the test, even if the test is killed: a shell kills it as soon as the
//! pipe from the test closes. Readiness is a log line or a reply, never a fixed time.

pub(crate) mod cluster;
pub(crate) mod delaying_proxy;
pub(crate) mod hostile;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod resp;
pub(crate) mod sentinel;
pub(crate) mod server;
