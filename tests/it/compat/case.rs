//! One request and its response, in the notation of the tables.
//!
//! Request: `domain[@hits] descriptor ; descriptor ...`. A descriptor is `key=value,key=value`
//! (`()` without entries), then any of `@3` (its own hits), `@-3` (a refund), `@-` (a refund of the
//! request's hits) and `!5/hour` (a limit of the request; a unit may be a number).
//!
//! Response: `overall | status ; status ...`. A status is its code, alone without a rule;
//! `unlimited`; or `left of limit/unit "name"`. An error is `error Code`.

use std::fmt::{self, Display, Formatter};

use envoy_types::pb::google::protobuf::UInt64Value;

use crate::support::rls::{
    Code, DescriptorStatus, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, descriptor,
};

/// The units, by their number in the protocol.
const UNITS: [&str; 8] = ["?", "second", "minute", "hour", "day", "month", "year", "week"];

/// The seconds of each unit. A multiple of an unknown unit may have any length.
const SECONDS: [i64; 8] = [i64::MAX, 1, 60, 3600, 86_400, 2_592_000, 31_536_000, 604_800];

/// A parsed request.
pub(crate) struct Question(pub(crate) RateLimitRequest);

impl Question {
    pub(crate) fn parse(text: &str) -> Question {
        let (head, descriptors) = text.split_once(' ').unwrap_or((text, ""));
        let (domain, hits) = head.split_once('@').unwrap_or((head, "0"));
        let parts = descriptors.split(';').map(str::trim).filter(|part| !part.is_empty());
        Question(RateLimitRequest {
            domain: if domain == "\"\"" { String::new() } else { domain.to_owned() },
            descriptors: parts.map(parse_descriptor).collect(),
            hits_addend: hits.parse().expect("the request's hits are a number"),
        })
    }
}

fn parse_descriptor(text: &str) -> RateLimitDescriptor {
    let mut words = text.split_whitespace();
    let entries = words.next().expect("a descriptor has entries").trim_matches(['(', ')']);
    let pairs = entries.split(',').filter(|entry| !entry.is_empty());
    let entries: Vec<_> = pairs.map(|e| e.split_once('=').expect("key=value")).collect();
    let mut parsed = descriptor(&entries);
    for word in words {
        if let Some((requests, unit)) = word.strip_prefix('!').and_then(|w| w.split_once('/')) {
            let requests_per_unit = requests.parse().expect("a number of requests");
            parsed.limit = Some(RateLimitOverride { requests_per_unit, unit: unit_number(unit) });
            continue;
        }
        let hits = word.strip_prefix('@').unwrap_or_else(|| panic!("not hits or a limit: {word}"));
        parsed.is_negative_hits = hits.starts_with('-');
        let size = hits.trim_start_matches('-');
        parsed.hits_addend = (!size.is_empty())
            .then(|| UInt64Value { value: size.parse().expect("a number of hits") });
    }
    parsed
}

fn unit_number(name: &str) -> i32 {
    let known = UNITS.iter().position(|unit| *unit == name).map(|at| at as i32);
    known.unwrap_or_else(|| name.parse().expect("a unit or its number"))
}

/// A response as text.
pub(crate) struct Shown<'r>(&'r tonic::Result<RateLimitResponse>);

impl<'r> Shown<'r> {
    pub(crate) fn of(answer: &'r tonic::Result<RateLimitResponse>) -> Shown<'r> {
        Shown(answer)
    }
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Err(status) => write!(f, "error {:?}", status.code()),
            Ok(answer) => {
                write!(f, "{}", code(answer.overall_code))?;
                for (index, status) in answer.statuses.iter().enumerate() {
                    write!(f, "{}", if index == 0 { " | " } else { " ; " })?;
                    show_status(f, status)?;
                }
                Ok(())
            }
        }
    }
}

fn show_status(f: &mut Formatter<'_>, status: &DescriptorStatus) -> fmt::Result {
    write!(f, "{}", code(status.code))?;
    let left = status.limit_remaining;
    let Some(limit) = &status.current_limit else {
        let reset = status.duration_until_reset.is_some();
        write!(f, "{}", if reset { " WITH A RESET AND NO LIMIT" } else { "" })?;
        return match left {
            0 => Ok(()),
            u32::MAX => write!(f, " unlimited"),
            _ => write!(f, " {left} OF NO LIMIT"),
        };
    };
    write!(f, " {left} of {}/", limit.requests_per_unit)?;
    write!(f, "{}", UNITS.get(limit.unit as usize).unwrap_or(&"WHAT UNIT"))?;
    if !limit.name.is_empty() {
        write!(f, " \"{}\"", limit.name)?;
    }
    // A window ends within its length and never in the past.
    let longest = SECONDS.get(limit.unit as usize).copied().unwrap_or(0);
    match &status.duration_until_reset {
        Some(reset)
            if (0..=longest).contains(&reset.seconds)
                && (0..1_000_000_000).contains(&reset.nanos)
                && (reset.seconds, reset.nanos) != (0, 0) =>
        {
            Ok(())
        }
        wrong => write!(f, " WITH RESET {wrong:?}"),
    }
}

fn code(number: i32) -> &'static str {
    match Code::try_from(number) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER",
        Ok(Code::Unknown) | Err(_) => "UNKNOWN",
    }
}

#[test]
fn a_request_parses_as_written() {
    let Question(parsed) = Question::parse("shop@7 a=b=c,d= @-3 ; () !5/hour ; e=f @0 !1/9");
    assert_eq!((parsed.domain.as_str(), parsed.hits_addend), ("shop", 7));
    let [first, second, third] = &parsed.descriptors[..] else { panic!("{parsed:?}") };
    assert_eq!(first.entries, descriptor(&[("a", "b=c"), ("d", "")]).entries);
    assert_eq!((first.hits_addend, first.is_negative_hits), (Some(UInt64Value { value: 3 }), true));
    assert!(second.entries.is_empty() && second.hits_addend.is_none());
    let limit = |requests_per_unit, unit| Some(RateLimitOverride { requests_per_unit, unit });
    assert_eq!((second.limit, third.limit), (limit(5, 3), limit(1, 9)));
    assert_eq!(
        (third.hits_addend, third.is_negative_hits),
        (Some(UInt64Value { value: 0 }), false)
    );
}
