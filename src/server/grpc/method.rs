//! The methods of the gRPC port.

use super::rate_limit_quota;
use super::should_rate_limit;

/// How a method is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    ShouldRateLimit,
    /// One request and one response, through tonic.
    Unary(&'static str),
    /// A call that may stay open, through tonic.
    Streaming(&'static str),
    /// A stream of quotas.
    Quotas,
}

impl Method {
    /// The method of a request path; `None` if it is unknown.
    pub(super) fn at(path: &[u8]) -> Option<Method> {
        const CHECK: &str = "/grpc.health.v1.Health/Check";
        const LIST: &str = "/grpc.health.v1.Health/List";
        const WATCH: &str = "/grpc.health.v1.Health/Watch";
        const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        const REFLECTION_ALPHA: &str =
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
        // The usual path first: comparing it is one call of memcmp.
        if path == should_rate_limit::PATH.as_bytes() {
            return Some(Method::ShouldRateLimit);
        }
        Some(match std::str::from_utf8(path).ok()? {
            rate_limit_quota::PATH => Method::Quotas,
            CHECK => Method::Unary(CHECK),
            LIST => Method::Unary(LIST),
            WATCH => Method::Streaming(WATCH),
            REFLECTION => Method::Streaming(REFLECTION),
            REFLECTION_ALPHA => Method::Streaming(REFLECTION_ALPHA),
            _ => return None,
        })
    }
}
