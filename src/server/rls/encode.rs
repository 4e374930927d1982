//! Encodes a [`Verdict`] as a `RateLimitResponse`.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{Duration, ListValue, Struct, Value};
use serde_json::Value as Json;

use crate::decision::{self, CurrentLimit, Verdict};
use crate::limit::Unit;
use crate::proto::{self, DescriptorStatus, HeaderValue, RateLimit, RateLimitResponse};
use crate::time::Micros;

/// The response for `verdict`. A number over 32 bits is sent as `u32::MAX`.
pub(super) fn response(verdict: Verdict) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: code(verdict.code),
        statuses: verdict.statuses.into_iter().map(status).collect(),
        response_headers_to_add: verdict.headers.into_iter().map(header).collect(),
        dynamic_metadata: verdict.metadata.map(structure),
        ..Default::default()
    }
}

fn status(status: decision::Status) -> DescriptorStatus {
    DescriptorStatus {
        code: code(status.code),
        current_limit: status.limit.map(limit),
        limit_remaining: clamp(status.remaining),
        duration_until_reset: status.reset_after.map(duration),
        quota: None,
    }
}

fn code(code: decision::Code) -> i32 {
    let code = match code {
        decision::Code::Ok => proto::Code::Ok,
        decision::Code::OverLimit => proto::Code::OverLimit,
    };
    code.into()
}

fn limit(limit: CurrentLimit) -> RateLimit {
    RateLimit {
        requests_per_unit: clamp(limit.requests),
        unit: unit(limit.unit).into(),
        name: limit.name.map(|name| name.to_string()).unwrap_or_default(),
    }
}

fn unit(unit: Option<Unit>) -> proto::Unit {
    match unit {
        None => proto::Unit::Unknown,
        Some(Unit::Second) => proto::Unit::Second,
        Some(Unit::Minute) => proto::Unit::Minute,
        Some(Unit::Hour) => proto::Unit::Hour,
        Some(Unit::Day) => proto::Unit::Day,
        Some(Unit::Week) => proto::Unit::Week,
        Some(Unit::Month) => proto::Unit::Month,
        Some(Unit::Year) => proto::Unit::Year,
    }
}

fn clamp(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The exact protobuf duration of `length`. Where clients expect whole seconds, the verdict already
/// has them.
fn duration(length: Micros) -> Duration {
    let seconds = i64::try_from(length.0 / 1_000_000).expect("a u64 / 10^6 fits");
    let nanos = i32::try_from(length.0 % 1_000_000 * 1_000).expect("below 10^9");
    Duration { seconds, nanos }
}

/// A header with `value` only: Envoy ignores `raw_value` in the response of a rate-limit service.
fn header((key, value): (std::borrow::Cow<'static, str>, String)) -> HeaderValue {
    HeaderValue { key: key.into_owned(), value, ..Default::default() }
}

fn structure(map: serde_json::Map<String, Json>) -> Struct {
    let fields: BTreeMap<_, _> = map.into_iter().map(|(name, json)| (name, value(json))).collect();
    Struct { fields }
}

fn value(json: Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(truth) => Kind::BoolValue(truth),
        // The only number type of `google.protobuf.Value` is double.
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::MAX)),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(items) => {
            Kind::ListValue(ListValue { values: items.into_iter().map(value).collect() })
        }
        Json::Object(map) => Kind::StructValue(structure(map)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::test_handlers;

    #[test]
    fn every_field_of_a_verdict_arrives() {
        let answer = response(test_handlers::full_verdict());
        assert_eq!(answer.overall_code(), proto::Code::OverLimit);
        let [over, none] = &answer.statuses[..] else { panic!("two statuses") };
        assert_eq!(over.code(), proto::Code::OverLimit);
        let limit = over.current_limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.name.as_str()), (10, "product"));
        assert_eq!(limit.unit(), proto::Unit::Week);
        assert_eq!(over.limit_remaining, 3);
        assert_eq!(over.duration_until_reset, Some(Duration { seconds: 60, nanos: 0 }));
        assert_eq!(none, &DescriptorStatus { code: 1, ..Default::default() });
        let [header] = &answer.response_headers_to_add[..] else { panic!("one header") };
        assert_eq!((header.key.as_str(), header.value.as_str()), ("retry-after", "60"));
        assert!(header.raw_value.is_empty(), "Envoy reads `value` only");
    }

    #[test]
    fn numbers_over_32_bits_are_sent_as_the_largest() {
        for (number, sent) in [
            (0, 0),
            (u64::from(u32::MAX), u32::MAX),
            (u64::from(u32::MAX) + 1, u32::MAX),
            (u64::MAX, u32::MAX),
        ] {
            assert_eq!(clamp(number), sent);
        }
        for (length, seconds, nanos) in [(0, 0, 0), (1, 0, 1_000), (2_000_007, 2, 7_000)] {
            assert_eq!(duration(Micros(length)), Duration { seconds, nanos });
        }
        assert!(duration(Micros(u64::MAX)).seconds > 0);
    }

    #[test]
    fn a_unit_is_sent_as_its_number() {
        let number = |one| i32::from(unit(one));
        assert_eq!(number(None), 0);
        assert_eq!(Unit::ALL.map(|one| number(Some(one))), [1, 2, 3, 4, 7, 5, 6]);
    }

    #[test]
    fn metadata_keeps_its_shape() {
        let json = serde_json::json!({
            "null": null, "truth": true, "n": 1.5, "big": u64::MAX, "text": "t",
            "list": [1, "a", {"deep": []}], "map": {"": false},
        });
        let Json::Object(map) = json else { unreachable!("an object") };
        let fields = structure(map).fields;
        let kind = |name: &str| fields[name].kind.clone().unwrap();
        assert_eq!(kind("null"), Kind::NullValue(0));
        assert_eq!(kind("truth"), Kind::BoolValue(true));
        assert_eq!(kind("n"), Kind::NumberValue(1.5));
        assert_eq!(kind("big"), Kind::NumberValue(u64::MAX as f64));
        assert_eq!(kind("text"), Kind::StringValue("t".into()));
        let Kind::ListValue(list) = kind("list") else { panic!("a list") };
        let Some(Kind::StructValue(deep)) = &list.values[2].kind else { panic!("a struct") };
        assert_eq!(deep.fields["deep"].kind, Some(Kind::ListValue(ListValue::default())));
        let Kind::StructValue(map) = kind("map") else { panic!("a struct") };
        assert_eq!(map.fields[""].kind, Some(Kind::BoolValue(false)));
    }
}
