//! The response configuration: operator settings that shape every response.

use crate::limit::OnError;

/// Settings that shape a verdict without touching a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseConfig {
    /// The families of limit headers.
    pub headers: Headers,
    /// Adds the three headers of envoyproxy/ratelimit under these names: limit, remaining, reset.
    pub envoy_ratelimit_headers: Option<[Box<str>; 3]>,
    /// Adds the header `x-weir-decision`, which explains the decision per descriptor.
    pub decision_header: bool,
    /// Allows every request that is over its limit. Statuses still report the denial.
    pub shadow_mode: bool,
    /// Treats every descriptor as a quota descriptor: the request is denied if all of them deny.
    pub quota_mode: bool,
    /// Returns the request's descriptors and the `metadata` of the rules that passed as dynamic
    /// metadata.
    pub dynamic_metadata: bool,
    /// Decides on a store error, for rules without `on_error`.
    pub on_error: OnError,
}

/// Families of limit headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// None.
    #[default]
    Off,
    /// `x-ratelimit-limit`, `-remaining` and `-reset`, in Envoy's own format.
    XRateLimit,
    /// `ratelimit-policy` and `ratelimit` of draft-ietf-httpapi-ratelimit-headers-11.
    Ietf,
    /// Both families.
    Both,
}
