//! The client of a server that sends rules by xDS (docs/xds.md).
//!
//! `session` decides what each request contains, and `backoff` when to connect again; both are pure.
//! `client` connects and passes responses on, in a thread with its own runtime. `cache` keeps the last
//! accepted response on disk. [`XdsStatus`] shows all of it to metrics and readiness.
//!
//! This module does not know the rules. A function of the application applies the resources of a
//! response, and returns the reasons against them.

use std::io;
use std::sync::Arc;

use crate::tls::TlsError;

mod backoff;
mod cache;
mod client;
mod connector;
mod credentials;
mod session;
mod status;

pub use client::{Client, check_files, start};
pub use status::{FirstRules, StreamEnd, XdsStatus};

/// The type of the resources that weir requests.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// A resource of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// The type of `value`, as the server named it.
    pub type_url: &'a str,
    /// The encoded message.
    pub value: &'a [u8],
}

/// Applies the resources of a whole response, which has this version. Returns the reasons against
/// them, one line each; empty if they are accepted. It logs them, and bounds their length. It may block
/// for seconds.
pub type Apply = Arc<dyn Fn(&str, &[Resource<'_>]) -> Vec<String> + Send + Sync>;

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
