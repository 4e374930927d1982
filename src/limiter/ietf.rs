//! The headers of draft-ietf-httpapi-ratelimit-headers-11: `RateLimit-Policy` and `RateLimit`.
//!
//! Both are lists of RFC 9651 structured fields. Policies list every tier of every decided rule;
//! `RateLimit` the reported tier of each descriptor, the most restrictive first. No partition key is
//! sent: it would tell clients how counters are identified.

use std::borrow::Cow;
use std::fmt::Write;

use super::headers::{Line, List, most_restrictive_first};

/// The largest integer a structured field can hold (RFC 9651, 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Adds both headers; `lines` is not empty.
pub(super) fn push(lines: &[Line<'_>], list: &mut List) {
    let mut policies: Vec<String> = Vec::new();
    for line in lines {
        for policy in line.policies() {
            // Two descriptors on one rule share its policies.
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
    }
    let limits: Vec<String> =
        most_restrictive_first(lines).into_iter().map(Line::service_limit).collect();
    list.push(("ratelimit-policy".into(), policies.join(", ")));
    list.push(("ratelimit".into(), limits.join(", ")));
}

impl Line<'_> {
    fn policies(&self) -> Vec<String> {
        let name = self.name();
        let tiers = self.limit.tiers.iter().map(|tier| {
            let mut policy = format!("\"{name}\";q={}", tier.requests.min(INTEGER_MAX));
            let _ = if self.limit.counts_slots() {
                write!(policy, ";qu=\"concurrent-requests\"")
            } else {
                write!(policy, ";w={}", tier.window.ceil_secs().min(INTEGER_MAX))
            };
            policy
        });
        tiers.collect()
    }

    fn service_limit(&self) -> String {
        let remaining = self.decision.remaining.min(INTEGER_MAX);
        let reset = self.decision.reset_after.ceil_secs().min(INTEGER_MAX);
        format!("\"{}\";r={remaining};t={reset}", self.name())
    }

    /// The policy's name: the rule's, else its keys joined with dots.
    fn name(&self) -> Cow<'_, str> {
        self.rule.map_or(Cow::Borrowed("override"), |rule| quotable(&rule.label))
    }
}

/// `text` as the inside of a structured field's string: printable ASCII, quotes escaped.
pub(super) fn quotable(text: &str) -> Cow<'_, str> {
    let plain = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => quoted.push('_'),
        }
    }
    Cow::Owned(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_printable_ascii_leaves_and_quotes_are_escaped() {
        assert_eq!(quotable("per user"), "per user");
        assert_eq!(quotable("a\"b\\c"), "a\\\"b\\\\c");
        assert_eq!(quotable("grün\r\n"), "gr_n__");
    }
}
