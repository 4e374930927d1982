//! Declares the settings `response.*`.

use crate::settings::format::{checked, choice, switch};
use crate::settings::scalar::header_name;
use crate::settings::section::section;

section! {
    /// The content of responses.
    pub struct ResponseSettings {
        /// Rate-limit headers: `x-ratelimit` (`x-ratelimit-limit`, `-remaining`, `-reset` in Envoy's
        /// form), `ietf` (`RateLimit`, `RateLimit-Policy`), `both` or `off` (also `false`, `none`).
        /// With any value but `off`, a denial also carries `retry-after`.
        headers: LimitHeaders = "off", choice([
            ("off", LimitHeaders::Off),
            ("false", LimitHeaders::Off),
            ("none", LimitHeaders::Off),
            ("x-ratelimit", LimitHeaders::XRateLimit),
            ("ietf", LimitHeaders::Ietf),
            ("both", LimitHeaders::Both),
        ]);
        /// Respond with OK to every request, also to one over its limit.
        shadow_mode: bool = "false", switch();
        /// Deny a request only if all of its limited descriptors are over their limits.
        quota_mode: bool = "false", switch();
        /// Return the descriptors of the request and the `metadata` of the rules as dynamic
        /// metadata.
        dynamic_metadata: bool = "false", switch();
        /// Add the header `x-weir-decision`, which explains the decision.
        decision_header: bool = "false", switch();
        /// Add the three headers of envoyproxy/ratelimit, named by `limit_header`,
        /// `remaining_header` and `reset_header`.
        envoy_ratelimit_headers: bool = "false", switch();
        /// With `envoy_ratelimit_headers`: name of the header with the limit.
        limit_header: String = "RateLimit-Limit", checked("a header name", header_name);
        /// With `envoy_ratelimit_headers`: name of the header with the remaining hits.
        remaining_header: String = "RateLimit-Remaining", checked("a header name", header_name);
        /// With `envoy_ratelimit_headers`: name of the header with the seconds until the reset.
        reset_header: String = "RateLimit-Reset", checked("a header name", header_name);
    }
}

/// Families of rate-limit headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitHeaders {
    /// None.
    #[default]
    Off,
    /// `x-ratelimit-limit`, `-remaining`, `-reset`, in the form that Envoy writes.
    XRateLimit,
    /// `ratelimit-policy` and `ratelimit` of draft-ietf-httpapi-ratelimit-headers-11.
    Ietf,
    /// Both families.
    Both,
}
