//! The outcome of a call, read from the body and the gRPC status of its response.

use prost::Message;

use crate::messages::RateLimitResponse;

/// The outcome of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The service decided.
    Decided(DecisionSummary),
    /// The service answered without a decision; the reason.
    Failed(String),
    /// The connection failed; the reason.
    Disconnected(String),
}

/// The parts of a decision that a run counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecisionSummary {
    pub(crate) code: OverallCode,
    /// Whether a fallback decided; `None` without the header `x-weir-decision`.
    pub(crate) by_fallback: Option<bool>,
}

/// The overall code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverallCode {
    Ok,
    OverLimit,
    Unknown,
}

/// Names of the gRPC status codes, by number.
const STATUS_NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Reads the outcome from a response body and its `grpc-status`.
pub(crate) fn classify(body: &[u8], status: Option<&[u8]>) -> CallOutcome {
    match status {
        Some(b"0") => {}
        Some(other) => {
            // The name only: `grpc-message` can be any text and differ in every call, and outcomes
            // are counted by their text.
            let number = std::str::from_utf8(other).ok().and_then(|text| text.parse().ok());
            let name = number.and_then(|number: usize| STATUS_NAMES.get(number).copied());
            return CallOutcome::Failed(format!("grpc {}", name.unwrap_or("invalid status")));
        }
        None => return CallOutcome::Failed("no grpc-status".into()),
    }
    // Compression flag and length. The flag is 0: the request accepts no compression.
    let Some(([0, ..], message)) = body.split_at_checked(5) else {
        return CallOutcome::Failed("no message".into());
    };
    let Ok(response) = RateLimitResponse::decode(message) else {
        return CallOutcome::Failed("not a RateLimitResponse".into());
    };
    let code = match response.overall_code {
        1 => OverallCode::Ok,
        2 => OverallCode::OverLimit,
        _ => OverallCode::Unknown,
    };
    CallOutcome::Decided(DecisionSummary { code, by_fallback: by_fallback(&response) })
}

/// Whether the header `x-weir-decision` names a fallback; `None` without the header.
fn by_fallback(response: &RateLimitResponse) -> Option<bool> {
    let mut headers = response.response_headers_to_add.iter();
    let header = headers.find(|header| header.key == "x-weir-decision")?;
    let value = String::from_utf8_lossy(&header.value);
    Some(value.split("fallback=").skip(1).any(|rest| !rest.starts_with("none")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::ResponseHeader;

    fn frame(response: &RateLimitResponse) -> Vec<u8> {
        [vec![0; 5], response.encode_to_vec()].concat()
    }

    #[test]
    fn codes_and_fallbacks_are_read() {
        let header = |key: &'static str, value: &'static str| ResponseHeader {
            key: key.into(),
            value: value.into(),
        };
        let decision = |value| header("x-weir-decision", value);
        let other = || header("x", "fallback=allow");
        let none = "rule=a;mode=exact;fallback=none";
        let allow = "rule=a;mode=exact;fallback=none, rule=b;mode=exact;fallback=allow;cause=open";
        let table = [
            (1, vec![], OverallCode::Ok, None),
            (2, vec![other()], OverallCode::OverLimit, None),
            (0, vec![decision(none)], OverallCode::Unknown, Some(false)),
            (1, vec![other(), decision(allow)], OverallCode::Ok, Some(true)),
        ];
        for (overall_code, response_headers_to_add, code, by_fallback) in table {
            let response = RateLimitResponse { overall_code, response_headers_to_add };
            let summary = DecisionSummary { code, by_fallback };
            assert_eq!(classify(&frame(&response), Some(b"0")), CallOutcome::Decided(summary));
        }
    }

    #[test]
    fn responses_without_a_decision_are_named() {
        let good = frame(&RateLimitResponse::default());
        for (body, status, name) in [
            (&good[..], Some(&b"8"[..]), "grpc RESOURCE_EXHAUSTED"),
            (&good, Some(b"99"), "grpc invalid status"),
            (&good, Some(b"\x9b8"), "grpc invalid status"),
            (&good, None, "no grpc-status"),
            (&[], Some(b"0"), "no message"),
            (&[0, 0, 0, 0, 1, 0xff], Some(b"0"), "not a RateLimitResponse"),
        ] {
            assert_eq!(classify(body, status), CallOutcome::Failed(name.into()));
        }
    }
}
