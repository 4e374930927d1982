//! The generated messages of the protocol, one module per package of `proto/`.
//!
//! Only the server, the client and the reader of rules by xDS use these messages. All other code
//! works on borrowed [`Request`](crate::descriptor::Request)s, on
//! [`Verdict`](crate::decision::Verdict)s and on [`RuleSet`](crate::rules::RuleSet)s.

pub(crate) mod wire;

pub use generated::{envoy, grpc};
pub use xds::ratelimit;

pub use envoy::config::core::v3::HeaderValue;
pub use envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
pub use envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
pub use envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_response::{BucketAction, bucket_action},
    rate_limit_quota_service_client::RateLimitQuotaServiceClient,
    rate_limit_quota_usage_reports::BucketQuotaUsage,
};
pub use envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, Quota, RateLimit, rate_limit::Unit,
};
pub use envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
pub use envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
pub use envoy::r#type::v3::rate_limit_strategy::{BlanketRule, RequestsPerTimeUnit, Strategy};
pub use envoy::r#type::v3::{RateLimitStrategy, TokenBucket};

/// The encoded descriptor set of all messages and their imports.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The messages of xDS.
#[allow(missing_docs, clippy::all)]
pub mod xds {
    include!(concat!(env!("OUT_DIR"), "/xds/protos.rs"));
}

#[allow(missing_docs, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/protos.rs"));
}
