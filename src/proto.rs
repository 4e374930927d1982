//! The generated messages of the protocol, one module per package of `proto/`.
//!
//! Only the server and the client use these messages. All other code works on borrowed
//! [`Request`](crate::descriptor::Request)s and on [`Verdict`](crate::decision::Verdict)s.

pub(crate) mod wire;

pub use generated::{envoy, grpc};

pub use envoy::config::core::v3::HeaderValue;
pub use envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
pub use envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
pub use envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, Quota, RateLimit, rate_limit::Unit,
};
pub use envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
pub use envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// The encoded descriptor set of all messages and their imports.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[allow(missing_docs, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/protos.rs"));
}
