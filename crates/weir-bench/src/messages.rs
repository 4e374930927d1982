//! The protobuf messages of `ShouldRateLimit`, as far as the generator writes and reads them.
//!
//! The messages are written by hand instead of generated, so that this crate needs no build script
//! and none of weir's messages. A test compares them with the independent crate `envoy-types`.

use bytes::Bytes;
use prost::Message;

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<DescriptorEntry>,
    /// A `google.protobuf.UInt64Value`.
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<u64>,
}

/// One key and value of a descriptor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescriptorEntry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`; other fields are skipped.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "3")]
    pub(crate) response_headers_to_add: Vec<ResponseHeader>,
}

/// `envoy.config.core.v3.HeaderValue`, without a check of its UTF-8.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy::config::core::v3::HeaderValue;
    use envoy_types::pb::envoy::service::ratelimit::v3 as envoy;

    #[test]
    fn requests_decode_as_envoy_types() {
        let entry = DescriptorEntry { key: "user".into(), value: "alice".into() };
        for hits_addend in [None, Some(0), Some(300)] {
            let descriptor = RateLimitDescriptor { entries: vec![entry.clone()], hits_addend };
            let request = RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor] };
            let bytes = request.encode_to_vec();
            let theirs = envoy::RateLimitRequest::decode(&bytes[..]).unwrap();
            assert_eq!((&*theirs.domain, theirs.hits_addend), ("d", 0));
            let [descriptor] = &theirs.descriptors[..] else { panic!("one descriptor") };
            assert_eq!(descriptor.hits_addend.as_ref().map(|hits| hits.value), hits_addend);
            let [entry] = &descriptor.entries[..] else { panic!("one entry") };
            assert_eq!((&*entry.key, &*entry.value), ("user", "alice"));
            assert_eq!(theirs.encode_to_vec(), bytes, "no field was unknown");
        }
    }

    #[test]
    fn responses_of_envoy_types_decode() {
        let response = envoy::RateLimitResponse {
            overall_code: envoy::rate_limit_response::Code::OverLimit.into(),
            statuses: vec![Default::default()],
            response_headers_to_add: vec![HeaderValue {
                key: "x".into(),
                value: "y".into(),
                ..Default::default()
            }],
            raw_body: b"body".to_vec(),
            ..Default::default()
        };
        let ours = RateLimitResponse::decode(&response.encode_to_vec()[..]).unwrap();
        let header = ResponseHeader { key: "x".into(), value: "y".into() };
        let headers = vec![header];
        assert_eq!(ours, RateLimitResponse { overall_code: 2, response_headers_to_add: headers });
    }
}
