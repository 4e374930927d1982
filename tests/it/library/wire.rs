//! The wire format: weir's definitions against the independent crate `envoy-types`, field by field,
//! in both directions.
//!
//! Random messages of weir, in which every field is set in some cases, are encoded and then decoded
//! by `envoy-types`. The result must equal a field-by-field translation. The reverse direction
//! follows. The decoder of the server, which borrows instead of copying, accepts the same bytes.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use envoy_types::pb;
use envoy_types::pb::envoy::config::core::v3 as their_core;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3 as their_common;
use envoy_types::pb::envoy::service::ratelimit::v3 as theirs;
use envoy_types::pb::google::protobuf as their_google;
use proptest::prelude::*;
use prost::Message;
use prost_types::value::Kind;
use weir::decision::{Code, Verdict};
use weir::descriptor::{Request, RequestBounds};
use weir::proto as ours;
use weir::server::{Decide, fuzz_harness};

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z/:.]{1,12}", "\\PC{0,8}"]
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

prop_compose! {
    fn any_descriptor()(
        entries in prop::collection::vec((any_text(), any_text()), 0..4),
        limit in prop::option::of((any::<u32>(), any::<i32>())),
        hits_addend in prop::option::of(any::<u64>()),
        is_negative_hits in any::<bool>(),
    ) -> ours::RateLimitDescriptor {
        ours::RateLimitDescriptor {
            entries: entries.into_iter().map(|(key, value)| ours::Entry { key, value }).collect(),
            limit: limit.map(|(requests_per_unit, unit)| {
                ours::RateLimitOverride { requests_per_unit, unit }
            }),
            hits_addend,
            is_negative_hits,
        }
    }
}

prop_compose! {
    fn any_request()(
        domain in any_text(),
        descriptors in prop::collection::vec(any_descriptor(), 0..4),
        hits_addend in any::<u32>(),
    ) -> ours::RateLimitRequest {
        ours::RateLimitRequest { domain, descriptors, hits_addend }
    }
}

prop_compose! {
    fn any_quota()(
        requests in any::<u32>(),
        id in any_text(),
        valid_until in prop::option::of((any::<i64>(), any::<i32>())),
    ) -> ours::Quota {
        use ours::envoy::service::ratelimit::v3::rate_limit_response::quota::ExpirationSpecifier;
        let instant = |(seconds, nanos)| {
            ExpirationSpecifier::ValidUntil(prost_types::Timestamp { seconds, nanos })
        };
        ours::Quota { requests, id, expiration_specifier: valid_until.map(instant) }
    }
}

prop_compose! {
    fn any_status()(
        code in any::<i32>(),
        limit in prop::option::of((any::<u32>(), any::<i32>(), any_text())),
        limit_remaining in any::<u32>(),
        reset in prop::option::of((any::<i64>(), any::<i32>())),
        quota in prop::option::of(any_quota()),
    ) -> ours::DescriptorStatus {
        ours::DescriptorStatus {
            code,
            current_limit: limit.map(|(requests_per_unit, unit, name)| {
                ours::RateLimit { requests_per_unit, unit, name }
            }),
            limit_remaining,
            duration_until_reset: reset.map(|(seconds, nanos)| {
                prost_types::Duration { seconds, nanos }
            }),
            quota,
        }
    }
}

prop_compose! {
    fn any_header()(
        key in any_text(),
        value in any_text(),
        raw_value in any_bytes(),
    ) -> ours::HeaderValue {
        ours::HeaderValue { key, value, raw_value }
    }
}

fn any_value() -> impl Strategy<Value = prost_types::Value> {
    let value = |kind| prost_types::Value { kind: Some(kind) };
    let leaf = prop_oneof![
        Just(Kind::NullValue(0)),
        any::<bool>().prop_map(Kind::BoolValue),
        (-1e9..1e9).prop_map(Kind::NumberValue),
        any_text().prop_map(Kind::StringValue),
    ]
    .prop_map(value);
    leaf.prop_recursive(3, 12, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|values| Kind::ListValue(prost_types::ListValue { values })),
            prop::collection::btree_map(any_text(), inner, 0..3)
                .prop_map(|fields| Kind::StructValue(prost_types::Struct { fields })),
        ]
        .prop_map(value)
    })
}

prop_compose! {
    fn any_response()(
        overall_code in any::<i32>(),
        statuses in prop::collection::vec(any_status(), 0..3),
        response_headers_to_add in prop::collection::vec(any_header(), 0..3),
        request_headers_to_add in prop::collection::vec(any_header(), 0..3),
        raw_body in any_bytes(),
        metadata in prop::option::of(prop::collection::btree_map(any_text(), any_value(), 0..4)),
        quota in prop::option::of(any_quota()),
    ) -> ours::RateLimitResponse {
        ours::RateLimitResponse {
            overall_code,
            statuses,
            response_headers_to_add,
            request_headers_to_add,
            raw_body,
            dynamic_metadata: metadata.map(|fields| prost_types::Struct { fields }),
            quota,
        }
    }
}

fn their_request(ours: ours::RateLimitRequest) -> theirs::RateLimitRequest {
    theirs::RateLimitRequest {
        domain: ours.domain,
        descriptors: ours.descriptors.into_iter().map(their_descriptor).collect(),
        hits_addend: ours.hits_addend,
    }
}

fn their_descriptor(ours: ours::RateLimitDescriptor) -> their_common::RateLimitDescriptor {
    use their_common::rate_limit_descriptor::{Entry, RateLimitOverride};
    their_common::RateLimitDescriptor {
        entries: ours
            .entries
            .into_iter()
            .map(|entry| Entry { key: entry.key, value: entry.value })
            .collect(),
        limit: ours.limit.map(|limit| RateLimitOverride {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
        }),
        hits_addend: ours.hits_addend.map(|value| their_google::UInt64Value { value }),
        is_negative_hits: ours.is_negative_hits,
    }
}

fn their_response(ours: ours::RateLimitResponse) -> theirs::RateLimitResponse {
    theirs::RateLimitResponse {
        overall_code: ours.overall_code,
        statuses: ours.statuses.into_iter().map(their_status).collect(),
        response_headers_to_add: ours.response_headers_to_add.into_iter().map(header).collect(),
        request_headers_to_add: ours.request_headers_to_add.into_iter().map(header).collect(),
        raw_body: ours.raw_body.into(),
        dynamic_metadata: ours.dynamic_metadata.map(structure),
        quota: ours.quota.map(their_quota),
    }
}

fn their_status(ours: ours::DescriptorStatus) -> theirs::rate_limit_response::DescriptorStatus {
    theirs::rate_limit_response::DescriptorStatus {
        code: ours.code,
        current_limit: ours.current_limit.map(|limit| theirs::rate_limit_response::RateLimit {
            name: limit.name,
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
        }),
        limit_remaining: ours.limit_remaining,
        duration_until_reset: ours
            .duration_until_reset
            .map(|length| their_google::Duration { seconds: length.seconds, nanos: length.nanos }),
        quota: ours.quota.map(their_quota),
    }
}

fn their_quota(ours: ours::Quota) -> theirs::rate_limit_response::Quota {
    use ours::envoy::service::ratelimit::v3::rate_limit_response::quota::ExpirationSpecifier;
    use theirs::rate_limit_response::quota::ExpirationSpecifier as Their;
    theirs::rate_limit_response::Quota {
        requests: ours.requests,
        id: ours.id,
        expiration_specifier: ours.expiration_specifier.map(
            |ExpirationSpecifier::ValidUntil(t)| {
                Their::ValidUntil(their_google::Timestamp { seconds: t.seconds, nanos: t.nanos })
            },
        ),
    }
}

fn header(ours: ours::HeaderValue) -> their_core::HeaderValue {
    their_core::HeaderValue { key: ours.key, value: ours.value, raw_value: ours.raw_value.into() }
}

fn structure(ours: prost_types::Struct) -> their_google::Struct {
    let fields = ours.fields.into_iter().map(|(name, one)| (name, value(one))).collect();
    their_google::Struct { fields }
}

fn value(ours: prost_types::Value) -> their_google::Value {
    use pb::google::protobuf::value::Kind as Their;
    let kind = ours.kind.map(|kind| match kind {
        Kind::NullValue(null) => Their::NullValue(null),
        Kind::NumberValue(number) => Their::NumberValue(number),
        Kind::StringValue(text) => Their::StringValue(text),
        Kind::BoolValue(truth) => Their::BoolValue(truth),
        Kind::StructValue(map) => Their::StructValue(structure(map)),
        Kind::ListValue(list) => {
            let values = list.values.into_iter().map(value).collect();
            Their::ListValue(their_google::ListValue { values })
        }
    });
    their_google::Value { kind }
}

proptest! {
    #[test]
    fn requests_equal_those_of_envoy_types(sent in any_request()) {
        let translated = their_request(sent.clone());
        let read = theirs::RateLimitRequest::decode(&*sent.encode_to_vec()).unwrap();
        prop_assert_eq!(&read, &translated);
        let back = ours::RateLimitRequest::decode(&*translated.encode_to_vec()).unwrap();
        prop_assert_eq!(back, sent);
    }

    #[test]
    fn responses_equal_those_of_envoy_types(sent in any_response()) {
        let translated = their_response(sent.clone());
        let read = theirs::RateLimitResponse::decode(&*sent.encode_to_vec()).unwrap();
        prop_assert_eq!(&read, &translated);
        let back = ours::RateLimitResponse::decode(&*translated.encode_to_vec()).unwrap();
        prop_assert_eq!(back, sent);
    }

    #[test]
    fn unknown_fields_are_skipped(
        sent in any_request(),
        number in 100_u32..1000,
        unknown in any_bytes(),
    ) {
        let mut bytes = sent.encode_to_vec();
        prost::encoding::bytes::encode(number, &unknown, &mut bytes);
        prost::encoding::uint64::encode(number + 1, &7, &mut bytes);
        prop_assert_eq!(ours::RateLimitRequest::decode(&*bytes).unwrap(), sent);
    }

    /// The server reports the same bytes as no `RateLimitRequest` as prost does.
    #[test]
    fn the_server_rejects_what_prost_rejects(bytes in damaged_request()) {
        let by_prost = ours::RateLimitRequest::decode(&*bytes);
        let rejected = served(&bytes).is_err_and(|reason| {
            reason.starts_with("the message is not a RateLimitRequest")
        });
        prop_assert_eq!(rejected, by_prost.is_err(), "{:?}", by_prost);
    }
}

/// An encoded request with some bytes inserted, changed, repeated or cut off; or random bytes.
fn damaged_request() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), 0..4, any::<u8>());
    let changes = prop::collection::vec(change, 0..6);
    let damaged = (any_request(), changes).prop_map(|(request, changes)| {
        let mut bytes = request.encode_to_vec();
        for (place, kind, byte) in changes {
            let place = place.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(place, byte),
                1 if place < bytes.len() => bytes[place] = byte,
                2 => bytes.extend_from_within(place..),
                _ => bytes.truncate(place),
            }
        }
        bytes
    });
    prop_oneof![4 => damaged, 1 => any_bytes().prop_map(|bytes| bytes.to_vec())]
}

/// Allows every valid request.
struct AllowAll;

impl Decide for AllowAll {
    async fn decide(&self, _: &Request<'_>) -> Verdict {
        Verdict {
            code: Code::Ok,
            statuses: Vec::new(),
            headers: Vec::new(),
            metadata: None,
            shadowed: false,
            rollback: None,
            what_if: Default::default(),
        }
    }
}

/// The server's response to a message, or the reason why it rejects it.
fn served(message: &[u8]) -> Result<Vec<u8>, String> {
    let bounds = RequestBounds::default();
    let call = fuzz_harness::protobuf(&AllowAll, &bounds, message);
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => Ok(response),
        Poll::Ready(Err(refused)) => {
            assert!(!refused.defect, "a panic was caught: {}", refused.reason);
            Err(refused.reason)
        }
        Poll::Pending => panic!("a decision without I/O is not ready"),
    }
}

#[test]
fn enums_have_the_same_numbers() {
    use envoy_types::pb::envoy::r#type::v3::RateLimitUnit as TheirUnit;
    use ours::envoy::r#type::v3::RateLimitUnit;
    use theirs::rate_limit_response::{Code as TheirCode, rate_limit::Unit as TheirAnswerUnit};
    for number in 0..=8 {
        assert_eq!(
            ours::Unit::try_from(number).ok().map(|unit| unit.as_str_name()),
            TheirAnswerUnit::try_from(number).ok().map(|unit| unit.as_str_name()),
        );
        assert_eq!(
            ours::Code::try_from(number).ok().map(|code| code.as_str_name()),
            TheirCode::try_from(number).ok().map(|code| code.as_str_name()),
        );
        let ours = RateLimitUnit::try_from(number).ok().map(|unit| unit.as_str_name());
        match TheirUnit::try_from(number) {
            Ok(unit) => assert_eq!(ours, Some(unit.as_str_name())),
            // Envoy has no week in requests yet. Our number is the one of responses.
            Err(_) => assert_eq!(ours, (number == 7).then_some("WEEK")),
        }
    }
}

#[test]
fn the_service_has_the_same_path() {
    type Theirs = theirs::rate_limit_service_server::RateLimitServiceServer<()>;
    let pool = prost_reflect::DescriptorPool::decode(ours::DESCRIPTORS).unwrap();
    let service = pool.get_service_by_name(<Theirs as tonic::server::NamedService>::NAME).unwrap();
    let methods: Vec<_> = service.methods().map(|method| method.name().to_owned()).collect();
    assert_eq!(methods, ["ShouldRateLimit"]);
}
