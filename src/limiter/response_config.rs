//! How answers are given: the operator's choices that hold for every rule.

use crate::limit::OnError;

/// Choices that shape a verdict without touching a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseConfig {
    /// Which limit headers the client gets.
    pub headers: Headers,
    /// envoyproxy/ratelimit's three headers under these names (limit, remaining, reset), beside `headers`.
    pub envoy_ratelimit_headers: Option<[Box<str>; 3]>,
    /// Adds `x-weir-decision`, which says how the answer came about.
    pub decision_header: bool,
    /// Lets every request pass that is over its limit; statuses still tell.
    pub shadow_mode: bool,
    /// Treats every descriptor as one of quota mode: only all of them together deny.
    pub quota_mode: bool,
    /// Sends the request's descriptors and the passing rules' `metadata` back as dynamic metadata.
    pub dynamic_metadata: bool,
    /// What decides when a store cannot, for rules that do not say.
    pub on_error: OnError,
}

/// Families of limit headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// None.
    #[default]
    Off,
    /// `x-ratelimit-limit`, `-remaining`, `-reset`, in the form Envoy itself writes.
    XRateLimit,
    /// `ratelimit-policy` and `ratelimit` of draft-ietf-httpapi-ratelimit-headers-11.
    Ietf,
    /// Both families.
    Both,
}
