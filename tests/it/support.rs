//! The black-box harness: the real binary, a real Envoy, and what stands around them.
//!
//! Nothing here sleeps. Whoever waits, waits for an event: a line of a log, an exit, an answer.
//! [`TIMEOUT`] only turns a hang into a failure that shows what the other side said.

use std::time::Duration;

pub(crate) mod cli;
pub(crate) mod collector;
pub(crate) mod edge;
pub(crate) mod envoy;
pub(crate) mod held;
pub(crate) mod http;
pub(crate) mod pki;
pub(crate) mod process;
pub(crate) mod promtool;
pub(crate) mod recorder;
pub(crate) mod rls;
pub(crate) mod secret;
pub(crate) mod stream;
pub(crate) mod upstream;
pub(crate) mod weir;

/// How long an event may take before the test fails; far beyond what any of them needs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
