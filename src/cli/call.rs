//! `weir call`: sends one call to a running service and prints the response.

use std::io::Write;
use std::time::Duration;

use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::{CallArgs, exit, say_error};
use crate::escape::{escaped_json, one_line};
use crate::proto::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    RateLimitServiceClient, Unit,
};

/// Sends the call and returns the exit code: 0 for OK, 1 for OVER_LIMIT, 69 without a response.
pub(super) fn run(args: &CallArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let call = args.service.call(|channel| async move {
        RateLimitServiceClient::new(channel).should_rate_limit(request(args)).await
    });
    match runtime.block_on(call) {
        Ok(response) => {
            let response = response.into_inner();
            print(&args.descriptors, &response, &mut std::io::stdout().lock())?;
            let over = response.overall_code() == Code::OverLimit;
            Ok(if over { exit::NEGATIVE } else { 0 })
        }
        Err(error) => {
            say_error(&error);
            Ok(exit::UNAVAILABLE)
        }
    }
}

fn request(args: &CallArgs) -> RateLimitRequest {
    let descriptor = |arg: &super::ParsedDescriptor| RateLimitDescriptor {
        entries: arg
            .0
            .iter()
            .map(|(key, value)| Entry { key: key.clone(), value: value.clone() })
            .collect(),
        hits_addend: args.hits,
        is_negative_hits: args.negative,
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: args.domain.clone(),
        descriptors: args.descriptors.iter().map(descriptor).collect(),
        ..RateLimitRequest::default()
    }
}

fn print(
    descriptors: &[super::ParsedDescriptor],
    response: &RateLimitResponse,
    out: &mut impl Write,
) -> std::io::Result<()> {
    writeln!(out, "{}", word(response.overall_code()))?;
    let statuses = descriptors.iter().zip(&response.statuses);
    for (index, (descriptor, status)) in statuses.enumerate() {
        let entries: Vec<String> =
            descriptor.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let fallback = fallback(response, index);
        let line = format!("{}: {}", entries.join(","), sentence(status, fallback));
        writeln!(out, "  {}", one_line(&line))?;
    }
    for header in &response.response_headers_to_add {
        writeln!(out, "  {}: {}", one_line(&header.key), one_line(&header.value))?;
    }
    let mut metadata = response.dynamic_metadata.clone().unwrap_or_default();
    // The lines above have it.
    metadata.fields.remove(FALLBACK);
    if !metadata.fields.is_empty() {
        writeln!(out, "  dynamic metadata: {}", escaped_json(&json(&metadata).to_string()))?;
    }
    Ok(())
}

/// The field of the dynamic metadata with the fallback of each descriptor.
const FALLBACK: &str = "fallback";

/// The fallback that decided the descriptor at `index`; `None` if no fallback did.
fn fallback(response: &RateLimitResponse, index: usize) -> Option<&str> {
    let policies = response.dynamic_metadata.as_ref()?.fields.get(FALLBACK)?;
    let Some(Kind::ListValue(list)) = &policies.kind else { return None };
    let Some(Kind::StringValue(policy)) = &list.values.get(index)?.kind else { return None };
    (policy != "none").then_some(policy.as_str())
}

fn sentence(status: &DescriptorStatus, fallback: Option<&str>) -> String {
    let code = match fallback {
        Some(policy) => format!("{}, by the fallback ({policy})", word(status.code())),
        None => word(status.code()).to_owned(),
    };
    let Some(limit) = &status.current_limit else {
        return if fallback.is_some() { code } else { format!("{code}, no limit") };
    };
    let per = match limit.unit() {
        Unit::Unknown => String::new(),
        unit => format!(" per {}", unit.as_str_name().to_lowercase()),
    };
    let name = if limit.name.is_empty() { String::new() } else { format!(" ({})", limit.name) };
    let reset = status
        .duration_until_reset
        .as_ref()
        .map_or(0.0, |reset| Duration::try_from(*reset).unwrap_or_default().as_secs_f64());
    let (requests, remaining) = (limit.requests_per_unit, status.limit_remaining);
    format!("{code}, limit {requests}{per}{name}, {remaining} remaining, resets in {reset:.3} s")
}

/// The JSON of a protobuf struct.
fn json(structure: &Struct) -> serde_json::Value {
    structure.fields.iter().map(|(name, value)| (name.clone(), value_json(value))).collect()
}

/// The end of the whole numbers that a double represents exactly: 2^53. Hits are below it.
const INTEGER_END: f64 = 9_007_199_254_740_992.0;

fn value_json(value: &Value) -> serde_json::Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(truth)) => (*truth).into(),
        // Protobuf has doubles only. Whole numbers are printed without a fraction.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < INTEGER_END => {
            (*number as i64).into()
        }
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(value_json).collect(),
        Some(Kind::StructValue(structure)) => json(structure),
    }
}

fn word(code: Code) -> &'static str {
    match code {
        Code::Unknown => "UNKNOWN",
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::HeaderValue;

    #[test]
    fn a_fallback_is_named_instead_of_numbers() {
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let policies = [text("allow"), text("none")];
        let list = prost_types::ListValue { values: policies.into() };
        let fields = [(FALLBACK.to_owned(), Value { kind: Some(Kind::ListValue(list)) })];
        let response = RateLimitResponse {
            dynamic_metadata: Some(Struct { fields: fields.into() }),
            ..RateLimitResponse::default()
        };
        let status = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
        let shown = [0, 1, 2].map(|index| sentence(&status, fallback(&response, index)));
        assert_eq!(shown, ["OK, by the fallback (allow)", "OK, no limit", "OK, no limit"]);
        let none = RateLimitResponse::default();
        assert_eq!(fallback(&none, 0), None);
    }

    #[test]
    fn texts_of_the_service_do_not_act_on_a_terminal() {
        let hostile = "a\u{9b}31m\u{202e}b";
        let header = HeaderValue {
            key: "x-name".to_owned(),
            value: hostile.to_owned(),
            ..HeaderValue::default()
        };
        let name = Value { kind: Some(Kind::StringValue(hostile.to_owned())) };
        let response = RateLimitResponse {
            response_headers_to_add: vec![header],
            dynamic_metadata: Some(Struct { fields: [("name".to_owned(), name)].into() }),
            ..RateLimitResponse::default()
        };
        let mut out = Vec::new();
        print(&[], &response, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                "UNKNOWN\n",
                "  x-name: a\\u{9b}31m\\u{202e}b\n",
                "  dynamic metadata: {\"name\":\"a\\u009b31m\\u202eb\"}\n"
            )
        );
    }

    #[test]
    fn metadata_is_shown_as_json() {
        let value = |kind| Value { kind: Some(kind) };
        let list = prost_types::ListValue {
            values: vec![value(Kind::BoolValue(true)), value(Kind::NullValue(0)), Value::default()],
        };
        let inner = [
            ("id".to_owned(), value(Kind::StringValue("e4\"".into()))),
            ("n".to_owned(), value(Kind::NumberValue(2000.0))),
            ("most".to_owned(), value(Kind::NumberValue(9_007_199_254_740_991.0))),
            ("share".to_owned(), value(Kind::NumberValue(-0.5))),
        ];
        let fields = [
            ("lease".to_owned(), value(Kind::StructValue(Struct { fields: inner.into() }))),
            ("list".to_owned(), value(Kind::ListValue(list))),
        ];
        assert_eq!(
            json(&Struct { fields: fields.into() }).to_string(),
            concat!(
                r#"{"lease":{"id":"e4\"","most":9007199254740991,"n":2000,"share":-0.5},"#,
                r#""list":[true,null,null]}"#
            )
        );
    }
}
