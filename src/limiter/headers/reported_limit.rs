//! Reported limits: what the limit headers report for each counted descriptor, and their order.

use std::borrow::Cow;

use crate::decision::{Code, Decision};
use crate::limit::{Limit, Tier};
use crate::rules::Rule;

/// Header names and values, in the order they are sent.
pub(super) type HeaderList = Vec<(Cow<'static, str>, String)>;

/// The content of the limit headers for one counted descriptor.
#[derive(Clone, Copy)]
pub(super) struct ReportedLimit<'d> {
    pub(super) rule: Option<&'d Rule>,
    pub(super) limit: &'d Limit,
    pub(super) decision: &'d Decision,
    pub(super) code: Code,
    /// Whether this is a quota descriptor, which denies only if all other quota descriptors do.
    pub(super) quota: bool,
    /// Whether the share of this instance decided. It is a bucket, whatever the algorithm.
    pub(super) by_share: bool,
}

impl ReportedLimit<'_> {
    /// The reported tier.
    pub(super) fn tier(&self) -> Option<&Tier> {
        self.limit.tiers.get(self.decision.tier)
    }

    /// The remaining share of the limit, as a fixed-point number. It orders all limits, also
    /// limits of 0. For a bucket it is the share of the size, not of the rate.
    fn share_left(&self) -> u128 {
        let Decision { remaining, used, .. } = *self.decision;
        let has_burst = self.limit.algorithm.has_burst();
        let full = match self.tier() {
            _ if self.by_share => remaining.saturating_add(used),
            Some(tier) if has_burst => tier.burst,
            Some(tier) => tier.requests,
            None => 0,
        };
        let left = u128::from(remaining) << 64;
        left.checked_div(u128::from(full)).unwrap_or(0)
    }

    pub(super) fn window_secs(&self) -> u64 {
        self.tier().map_or(1, |tier| tier.window.ceil_secs())
    }
}

/// The limits from the most restrictive: denied ones first, then by the remaining share. Equal
/// limits keep the request's order.
pub(super) fn most_restrictive_first<'l, 'd>(
    limits: &'l [ReportedLimit<'d>],
) -> Vec<&'l ReportedLimit<'d>> {
    let mut sorted: Vec<&ReportedLimit<'_>> = limits.iter().collect();
    sorted.sort_by_key(|limit| (limit.code != Code::OverLimit, limit.share_left()));
    sorted
}

/// Most characters of a rule name in a header. A selector may have long patterns, and proxies reject
/// responses with large headers.
const NAME_CHARS_MAX: usize = 256;

/// The name of `rule` as the content of a structured field's string. A longer one is cut.
pub(super) fn quotable_name(rule: &Rule) -> Cow<'_, str> {
    let name = &*rule.display_name;
    // Most names are shorter in bytes too.
    let end = match name.len() {
        ..=NAME_CHARS_MAX => None,
        _ => name.char_indices().nth(NAME_CHARS_MAX),
    };
    quotable(end.map_or(name, |(end, _)| &name[..end]))
}

/// `text` as the content of a structured field's string: printable ASCII, with quotes and
/// backslashes escaped.
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
    fn quotable_is_printable_ascii_with_escaped_quotes() {
        assert_eq!(quotable("per user"), "per user");
        assert_eq!(quotable("a\"b\\c"), "a\\\"b\\\\c");
        assert_eq!(quotable("grün\r\n"), "gr_n__");
    }
}
