//! The client of a server that sends rules by xDS (docs/guides/xds.md).
//!
//! `session` decides what each request contains, and is pure. `client` connects and passes responses on,
//! in a thread with its own runtime. `cache` keeps the active rules on disk. [`XdsStatus`] shows all of
//! it to metrics and readiness.
//!
//! This module decodes no rules. The application's [`RulesByXds`] applies the resources of a
//! response, and returns the reasons against them.

use std::io;

use crate::rules::{XdsOutcome, XdsResource};
use crate::tls::TlsError;

mod cache;
mod client;
mod connector;
mod credentials;
mod session;
mod status;

pub use client::{XdsClient, check_files, start};
pub use status::{FirstRules, StreamEnd, XdsStatus};

/// The active rules by xDS, which the client replaces. Its calls may block for seconds.
pub trait RulesByXds: Send + Sync + 'static {
    /// Applies the resources of a whole response, which has this version. Logs the reasons against
    /// them, and bounds their length. One thread at a time calls it.
    fn apply(&self, version: &str, resources: &[XdsResource<'_>]) -> XdsOutcome;

    /// The active rules, as encoded resources.
    fn encoded(&self) -> Vec<Vec<u8>>;
}

/// Why the client cannot start.
#[derive(Debug, thiserror::Error)]
pub enum XdsError {
    /// Files of TLS that cannot be used.
    #[error("{0}")]
    Settings(#[from] TlsError),
    /// An error of the operating system.
    #[error("{0}")]
    Io(#[from] io::Error),
}
