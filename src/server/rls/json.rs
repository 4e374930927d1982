//! Reads requests and writes responses as proto3 JSON
//! (<https://protobuf.dev/programming-guides/json/>).

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::proto::{DESCRIPTORS, RateLimitResponse};

/// The JSON codec: reads requests and writes responses.
#[derive(Clone, Debug)]
pub(in crate::server) struct Json {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

impl Json {
    pub(in crate::server) fn new() -> Json {
        let pool = DescriptorPool::decode(DESCRIPTORS).expect("the build wrote the descriptors");
        let message = |name: &str| {
            let name = format!("envoy.service.ratelimit.v3.{name}");
            pool.get_message_by_name(&name).expect("the build compiled the service")
        };
        Json { request: message("RateLimitRequest"), response: message("RateLimitResponse") }
    }

    /// The request in `body`, encoded as protobuf. Field names may be in camelCase or snake_case.
    /// The error has the problem and its position.
    pub(in crate::server) fn read(&self, body: &[u8]) -> serde_json::Result<Vec<u8>> {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let message = DynamicMessage::deserialize(self.request.clone(), &mut reader)?;
        reader.end()?;
        Ok(message.encode_to_vec())
    }

    /// `response` as JSON, with field names in camelCase, enums by name, and without unset fields.
    pub(in crate::server) fn write(
        &self,
        response: &RateLimitResponse,
    ) -> serde_json::Result<Vec<u8>> {
        let mut message = DynamicMessage::new(self.response.clone());
        message.transcode_from(response).expect("the same descriptors on both sides");
        serde_json::to_vec(&message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};
    use crate::server::rls::encode;
    use crate::server::tests::test_handlers;

    #[test]
    fn a_request_is_read_in_either_spelling() {
        let camel = r#"{"domain": "shop", "hitsAddend": 2, "descriptors": [{
            "entries": [{"key": "k", "value": "v"}],
            "limit": {"requestsPerUnit": 5, "unit": "WEEK"},
            "hitsAddend": "9007199254740993", "isNegativeHits": true}]}"#;
        let snake = r#"{"domain": "shop", "hits_addend": "2", "descriptors": [{
            "entries": [{"key": "k", "value": "v"}],
            "limit": {"requests_per_unit": 5, "unit": 7},
            "hits_addend": 9007199254740993, "is_negative_hits": true}]}"#;
        let descriptor = RateLimitDescriptor {
            entries: vec![Entry { key: "k".into(), value: "v".into() }],
            limit: Some(RateLimitOverride { requests_per_unit: 5, unit: 7 }),
            hits_addend: Some(9_007_199_254_740_993),
            is_negative_hits: true,
        };
        let request = RateLimitRequest {
            domain: "shop".into(),
            descriptors: vec![descriptor],
            hits_addend: 2,
        };
        let json = Json::new();
        let read = |text: &str| {
            let bytes = json.read(text.as_bytes()).unwrap();
            RateLimitRequest::decode(&bytes[..]).unwrap()
        };
        assert_eq!([read(camel), read(snake)], [request.clone(), request]);
        assert_eq!(read("{}"), RateLimitRequest::default());
        let nulls = r#"{"domain": null, "descriptors": [{"limit": null, "hitsAddend": null}]}"#;
        assert_eq!(read(nulls).descriptors, [RateLimitDescriptor::default()]);
    }

    #[test]
    fn invalid_json_is_refused_with_the_reason() {
        let deep = "[".repeat(100_000);
        let table: [(&str, &str); 16] = [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "invalid type"),
            ("null", "invalid type"),
            ("{} {}", "trailing"),
            (r#"{"domian": "d"}"#, "domian"),
            (r#"{"descriptors": [{"entries": [{"key": "k", "vlaue": "v"}]}]}"#, "vlaue"),
            (r#"{"domain": 1}"#, "invalid type"),
            (r#"{"hitsAddend": -1}"#, "out of range"),
            (r#"{"hitsAddend": 4294967296}"#, "out of range"),
            (r#"{"hitsAddend": 1.5}"#, "expected"),
            (r#"{"descriptors": {}}"#, "invalid type"),
            (r#"{"descriptors": [{"hitsAddend": "18446744073709551616"}]}"#, "too large"),
            (r#"{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}"#, "FORTNIGHT"),
            ("{\"domain\": \"\u{1}\"}", "control character"),
            (deep.as_str(), "invalid type"),
        ];
        let json = Json::new();
        for (text, reason) in table {
            let error = json.read(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(reason), "{text:.40}: {error}");
        }
        assert!(json.read(b"{\"domain\": \"\xff\"}").is_err(), "not UTF-8");
    }

    #[test]
    fn a_response_is_written_as_envoy_ratelimit_writes_it() {
        let response = encode::response(test_handlers::full_verdict());
        let text = Json::new().write(&response).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let expected = serde_json::json!({
            "overallCode": "OVER_LIMIT",
            "statuses": [
                {
                    "code": "OVER_LIMIT",
                    "currentLimit": {"requestsPerUnit": 10, "unit": "WEEK", "name": "product"},
                    "limitRemaining": 3,
                    "durationUntilReset": "60s",
                },
                {"code": "OK"},
            ],
            "responseHeadersToAdd": [{"key": "retry-after", "value": "60"}],
            "dynamicMetadata": {"domain": "shop", "n": 2.0},
        });
        assert_eq!(read, expected);
    }
}
