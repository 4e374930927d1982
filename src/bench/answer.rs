//! What an answer says, as far as a run counts it.

use prost::Message;

use crate::proto::wire;

/// What one call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The service decided.
    Decided(Said),
    /// It did not: what was said instead.
    Failed(String),
    /// The connection failed.
    Broken(String),
}

/// What a decision says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) code: Code,
    /// Whether a fallback decided; none where the answer does not tell.
    pub(super) by_fallback: Option<bool>,
}

/// The overall code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Ok,
    OverLimit,
    Unknown,
}

/// The response, as far as it is read; other fields are skipped.
#[derive(Clone, PartialEq, Message)]
struct Overall {
    #[prost(int32, tag = "1")]
    code: i32,
}

/// Names of gRPC's status codes, by number.
const STATUS: [&str; 17] = [
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

/// Makes something of a body and of the status that came with it.
pub(super) fn read(body: &[u8], status: Option<&[u8]>) -> Outcome {
    match status {
        Some(b"0") => {}
        Some(other) => {
            // By name only: the text of a stranger may be anything, and another one each time.
            let number = std::str::from_utf8(other).ok().and_then(|text| text.parse().ok());
            let name = number.and_then(|number: usize| STATUS.get(number).copied());
            return Outcome::Failed(format!("grpc {}", name.unwrap_or("status that is none")));
        }
        None => return Outcome::Failed("no grpc-status".into()),
    }
    // Flag and length; nobody asked for compression.
    let Some(([0, ..], message)) = body.split_at_checked(5) else {
        return Outcome::Failed("no message".into());
    };
    let Ok(overall) = Overall::decode(message) else {
        return Outcome::Failed("not a RateLimitResponse".into());
    };
    let code = match overall.code {
        1 => Code::Ok,
        2 => Code::OverLimit,
        _ => Code::Unknown,
    };
    Outcome::Decided(Said { code, by_fallback: by_fallback(message) })
}

/// What `x-weir-decision` among the headers says, if it is there.
fn by_fallback(message: &[u8]) -> Option<bool> {
    let mut found = None;
    wire::each(message, 3, |header| {
        wire::each(header, 1, |name| {
            if name == b"x-weir-decision" {
                wire::each(header, 2, |value| {
                    let value = String::from_utf8_lossy(value);
                    let each = value.split("fallback=").skip(1);
                    found = Some(each.into_iter().any(|word| !word.starts_with("none")));
                });
            }
        });
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{HeaderValue, RateLimitResponse};

    fn frame(response: &RateLimitResponse) -> Vec<u8> {
        [vec![0; 5], response.encode_to_vec()].concat()
    }

    #[test]
    fn codes_and_fallbacks_are_read() {
        let header = |value: &str| HeaderValue {
            key: "x-weir-decision".into(),
            value: value.into(),
            ..Default::default()
        };
        let other = || HeaderValue {
            key: "x".into(),
            value: "fallback=allow".into(),
            ..Default::default()
        };
        let none = "rule=a;mode=exact;fallback=none";
        let allow = "rule=a;mode=exact;fallback=none, rule=b;mode=exact;fallback=allow;cause=open";
        let table = [
            (1, vec![], Code::Ok, None),
            (2, vec![other()], Code::OverLimit, None),
            (0, vec![header(none)], Code::Unknown, Some(false)),
            (1, vec![other(), header(allow)], Code::Ok, Some(true)),
        ];
        for (number, headers, code, by_fallback) in table {
            let response = RateLimitResponse {
                overall_code: number,
                response_headers_to_add: headers,
                ..Default::default()
            };
            let said = Said { code, by_fallback };
            assert_eq!(read(&frame(&response), Some(b"0")), Outcome::Decided(said));
        }
    }

    #[test]
    fn what_is_no_decision_is_named() {
        let good = frame(&RateLimitResponse::default());
        for (body, status, name) in [
            (&good[..], Some(&b"8"[..]), "grpc RESOURCE_EXHAUSTED"),
            (&good, Some(b"99"), "grpc status that is none"),
            (&good, Some(b"\x9b8"), "grpc status that is none"),
            (&good, None, "no grpc-status"),
            (&[], Some(b"0"), "no message"),
            (&[0, 0, 0, 0, 1, 0xff], Some(b"0"), "not a RateLimitResponse"),
        ] {
            assert_eq!(read(body, status), Outcome::Failed(name.into()));
        }
    }
}
