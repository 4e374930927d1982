//! Real Redis processes on loopback for tests, and the faults that can befall them.
//!
//! Every process ends with the test, also when the test is killed: a shell watches over it and ends
//! it as soon as the pipe from the test closes. Nothing here sleeps: readiness is a line of the
//! server's log, or an answer.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod process;
pub(crate) mod resp;
pub(crate) mod server;
