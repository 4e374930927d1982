//! `weir call`: sends one call to a running service and prints the response.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::{CallArgs, TlsArgs, exit, say};
use crate::proto::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    RateLimitServiceClient, Unit,
};

/// Sends the call and returns the exit code: 0 for OK, 1 for OVER_LIMIT, 69 without a response.
pub(super) fn run(args: &CallArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(ask(args)) {
        Ok(response) => {
            print(args, &response)?;
            let over = response.overall_code() == Code::OverLimit;
            Ok(if over { exit::NEGATIVE } else { 0 })
        }
        Err(error) => {
            say(format_args!("weir: {error:#}"));
            Ok(exit::UNAVAILABLE)
        }
    }
}

async fn ask(args: &CallArgs) -> anyhow::Result<RateLimitResponse> {
    let timeout = Duration::from_millis(args.timeout);
    let tls = tls(&args.tls)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", args.addr))
        .with_context(|| format!("--addr {} is not host:port", args.addr))?;
    let endpoint = match tls {
        Some(tls) => endpoint.tls_config(tls).context("TLS with these files is not possible")?,
        None => endpoint,
    };
    let asking = async {
        let channel = endpoint.connect_timeout(timeout).connect().await.with_context(|| {
            let hint = if scheme == "https" { "with TLS" } else { "without TLS (--tls)" };
            format!("no service answers at {} {hint}; is `weir serve` running there?", args.addr)
        })?;
        let answer = RateLimitServiceClient::new(channel).should_rate_limit(request(args)).await;
        answer.map_err(|status| anyhow::anyhow!("{:?}: {}", status.code(), status.message()))
    };
    let answer = tokio::time::timeout(timeout, asking)
        .await
        .with_context(|| format!("no answer from {} within {} ms", args.addr, args.timeout))?;
    Ok(answer?.into_inner())
}

/// The TLS configuration; `None` without a flag of TLS.
fn tls(args: &TlsArgs) -> anyhow::Result<Option<ClientTlsConfig>> {
    let TlsArgs { tls, ca, cert, key, server_name } = args;
    if !tls && ca.is_none() && cert.is_none() && server_name.is_none() {
        return Ok(None);
    }
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| path.display().to_string());
    let mut config = ClientTlsConfig::new();
    config = match ca {
        Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
        None => config.with_native_roots(),
    };
    if let (Some(cert), Some(key)) = (cert, key) {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    if let Some(name) = server_name {
        config = config.domain_name(name);
    }
    Ok(Some(config))
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

fn print(args: &CallArgs, response: &RateLimitResponse) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", word(response.overall_code()))?;
    for (descriptor, status) in args.descriptors.iter().zip(&response.statuses) {
        let entries: Vec<String> =
            descriptor.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        writeln!(out, "  {}: {}", entries.join(","), sentence(status))?;
    }
    for header in &response.response_headers_to_add {
        writeln!(out, "  {}: {}", header.key, header.value)?;
    }
    if let Some(metadata) = &response.dynamic_metadata {
        writeln!(out, "  dynamic metadata: {}", json(metadata))?;
    }
    Ok(())
}

fn sentence(status: &DescriptorStatus) -> String {
    let code = word(status.code());
    let Some(limit) = &status.current_limit else {
        return format!("{code}, no limit");
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

fn value_json(value: &Value) -> serde_json::Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(truth)) => (*truth).into(),
        // Protobuf has doubles only. Whole numbers are printed without a fraction.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < 2e15 => {
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

    #[test]
    fn metadata_is_shown_as_json() {
        let value = |kind| Value { kind: Some(kind) };
        let list = prost_types::ListValue {
            values: vec![value(Kind::BoolValue(true)), value(Kind::NullValue(0)), Value::default()],
        };
        let inner = [
            ("id".to_owned(), value(Kind::StringValue("e4\"".into()))),
            ("n".to_owned(), value(Kind::NumberValue(2000.0))),
            ("share".to_owned(), value(Kind::NumberValue(-0.5))),
        ];
        let fields = [
            ("lease".to_owned(), value(Kind::StructValue(Struct { fields: inner.into() }))),
            ("list".to_owned(), value(Kind::ListValue(list))),
        ];
        assert_eq!(
            json(&Struct { fields: fields.into() }).to_string(),
            r#"{"lease":{"id":"e4\"","n":2000,"share":-0.5},"list":[true,null,null]}"#
        );
    }
}
