//! The protobuf messages of `ShouldRateLimit`, as far as the layer writes and reads them.
//!
//! The messages are written by hand instead of generated, so that this crate needs no build script and no crate
//! with all messages of Envoy. A test compares them with such a crate, `envoy-types`.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;

/// `OVER_LIMIT` of `envoy.service.ratelimit.v3.RateLimitResponse.Code`.
const OVER_LIMIT: i32 = 2;

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
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) response_headers_to_add: Vec<ResponseHeader>,
}

/// The status of one descriptor; other fields are skipped.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescriptorStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<ResetDuration>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResetDuration {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
    /// The value, if `value` is empty. It may have other bytes than those of UTF-8.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) raw_value: Vec<u8>,
}

impl ResponseHeader {
    /// The name and the value; `None` if HTTP does not permit them.
    fn parts(&self) -> Option<(HeaderName, HeaderValue)> {
        let value =
            if self.value.is_empty() { self.raw_value.as_slice() } else { self.value.as_bytes() };
        let name = HeaderName::from_bytes(self.key.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value).ok()?))
    }
}

impl RateLimitResponse {
    /// Whether the request is over a limit.
    pub(crate) fn is_denial(&self) -> bool {
        self.overall_code == OVER_LIMIT
    }

    /// Seconds until the longest denial ends, at least 1.
    pub(crate) fn retry_after(&self) -> u64 {
        let denied = self.statuses.iter().filter(|status| status.code == OVER_LIMIT);
        let waits = denied.filter_map(|status| {
            let reset = status.duration_until_reset.as_ref()?;
            u64::try_from(reset.seconds.saturating_add(i64::from(reset.nanos > 0))).ok()
        });
        waits.max().unwrap_or(1).max(1)
    }

    /// Appends the headers of the answer. Those that HTTP does not permit are left out.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in self.response_headers_to_add.iter().filter_map(ResponseHeader::parts) {
            headers.append(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Descriptor;
    use envoy_types::pb::envoy::config::core::v3::HeaderValue as TheirHeader;
    use envoy_types::pb::envoy::service::ratelimit::v3 as envoy;
    use envoy_types::pb::google::protobuf::Duration as TheirDuration;

    #[test]
    fn requests_decode_as_envoy_types() {
        let two = Descriptor::new("user", "alice").entry("path", "/x");
        for (descriptor, hits) in [(two.clone(), None), (two.hits(300), Some(300))] {
            let request = RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor.0] };
            let bytes = request.encode_to_vec();
            let theirs = envoy::RateLimitRequest::decode(&bytes[..]).expect("their message");
            assert_eq!((&*theirs.domain, theirs.hits_addend), ("d", 0));
            let [descriptor] = &theirs.descriptors[..] else { panic!("one descriptor") };
            assert_eq!(descriptor.hits_addend.as_ref().map(|hits| hits.value), hits);
            let entries: Vec<(&str, &str)> =
                descriptor.entries.iter().map(|one| (&*one.key, &*one.value)).collect();
            assert_eq!(entries, [("user", "alice"), ("path", "/x")]);
            assert_eq!(theirs.encode_to_vec(), bytes, "no field was unknown");
        }
    }

    #[test]
    fn responses_of_envoy_types_decode() {
        let over = envoy::rate_limit_response::Code::OverLimit;
        let status = envoy::rate_limit_response::DescriptorStatus {
            code: over.into(),
            limit_remaining: 7,
            duration_until_reset: Some(TheirDuration { seconds: 5, nanos: 1 }),
            ..Default::default()
        };
        let header = TheirHeader { key: "x-a".into(), value: "b".into(), ..Default::default() };
        let raw = TheirHeader {
            key: "x-raw".into(),
            raw_value: b"caf\xe9".to_vec(),
            ..Default::default()
        };
        let response = envoy::RateLimitResponse {
            overall_code: over.into(),
            statuses: vec![status],
            response_headers_to_add: vec![header, raw],
            raw_body: b"body".to_vec(),
            ..Default::default()
        };
        let ours = RateLimitResponse::decode(&response.encode_to_vec()[..]).expect("our message");
        assert!(ours.is_denial());
        assert_eq!(ours.retry_after(), 6);
        let mut headers = HeaderMap::new();
        ours.add_headers(&mut headers);
        assert_eq!(headers["x-a"], "b");
        assert_eq!(headers["x-raw"].as_bytes(), b"caf\xe9");
    }

    #[test]
    fn the_longest_denial_counts() {
        let status = |code, seconds, nanos| DescriptorStatus {
            code,
            duration_until_reset: Some(ResetDuration { seconds, nanos }),
        };
        let unknown = DescriptorStatus { code: OVER_LIMIT, duration_until_reset: None };
        let table = [
            (vec![], 1),
            (vec![unknown], 1),
            (vec![status(OVER_LIMIT, 0, 1)], 1),
            (vec![status(OVER_LIMIT, -5, 0)], 1),
            (vec![status(1, 3600, 0), status(OVER_LIMIT, 9, 0)], 9),
            (vec![status(OVER_LIMIT, 9, 1), status(OVER_LIMIT, 3, 999_999_999)], 10),
            (vec![status(OVER_LIMIT, i64::MAX, 1)], i64::MAX.unsigned_abs()),
        ];
        for (statuses, seconds) in table {
            let response = RateLimitResponse { statuses, ..Default::default() };
            assert_eq!(response.retry_after(), seconds, "{response:?}");
        }
    }

    #[test]
    fn invalid_headers_are_left_out() {
        let header = |key: &str, value: &str| ResponseHeader {
            key: key.into(),
            value: value.into(),
            ..Default::default()
        };
        let raw = |bytes: &[u8]| ResponseHeader { raw_value: bytes.to_vec(), ..header("x-a", "") };
        let response = RateLimitResponse {
            response_headers_to_add: vec![
                header("a b", "c"),
                header("x-a", "line\nbreak"),
                header("", "c"),
                raw(b"line\r\nbreak"),
                raw(b"\0"),
                header("x-a", "1"),
                raw(b"2"),
                // `value` has precedence.
                ResponseHeader { raw_value: b"4".to_vec(), ..header("x-a", "3") },
                header("x-a", ""),
            ],
            ..Default::default()
        };
        let mut headers = HeaderMap::new();
        response.add_headers(&mut headers);
        let values: Vec<&HeaderValue> = headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2", "3", ""]);
        assert_eq!(headers.len(), 4);
    }
}
