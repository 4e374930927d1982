//! What the black-box tests have to offer: the binary, and clients that ask it.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

use std::time::Duration;

#[path = "../it/support/collector.rs"]
pub(crate) mod collector;
#[path = "../it/support/envoy.rs"]
pub(crate) mod envoy;
#[path = "../it/support/http.rs"]
pub(crate) mod http;
#[path = "../it/support/process.rs"]
pub(crate) mod process;
#[path = "../it/support/promtool.rs"]
pub(crate) mod promtool;
#[path = "../it/support/rls.rs"]
pub(crate) mod rls;
#[path = "../it/support/secret.rs"]
pub(crate) mod secret;
#[path = "../it/support/weir.rs"]
pub(crate) mod weir;

/// How long an event may take before a test fails; far beyond what any of them needs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
