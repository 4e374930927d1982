//! Writes descriptors for lines: with their values, with hashes, or with keys only.

use std::borrow::Cow;

use crate::decision::Verdict;
use crate::decision_record::{ValueHash, recorded_entries};
use crate::descriptor::{Descriptor, Entry, Request};
use crate::escape::excerpt;
use crate::rules::{RuleSet, descriptor_selector, is_sensitive};
use crate::settings::LineValues;

/// Longest text of a descriptor in a line, in characters. Eight entries with hashes fit.
const CHARS_MAX: usize = 400;

/// The most descriptors in a line.
const DESCRIPTORS_MAX: usize = 8;

/// The start of a hash in place of a value.
const HASH_MARK: &str = "hash:";

/// How values of requests are shown.
pub(super) struct ShownValues {
    /// `log.request_values`.
    form: LineValues,
    hash: ValueHash,
}

impl ShownValues {
    pub(super) fn new(form: LineValues, hash: ValueHash) -> ShownValues {
        ShownValues { form, hash }
    }

    /// A descriptor with these entries, at the level `debug`: plain, but for values of sensitive keys.
    pub(super) fn at_debug(&self, entries: &[Entry<'_>]) -> String {
        let plain = entries.iter().map(|entry| (entry.key, Cow::Borrowed(entry.value)));
        self.with_secrets_hashed(entries, plain.collect())
    }

    /// The descriptor at `index`, and all descriptors if there are several, at the level `info`.
    pub(super) fn at_info(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        verdict: &Verdict,
        index: usize,
    ) -> (String, Option<String>) {
        let text = |index: usize, descriptor: &Descriptor<'_>| {
            let status = verdict.statuses.get(index);
            let rule = status.and_then(|status| status.reason.rule());
            self.text(rules, descriptor, rule)
        };
        let one = request.descriptors.get(index).map(|descriptor| text(index, descriptor));
        let number = request.descriptors.len();
        let all = (number > 1).then(|| {
            let first = request.descriptors.iter().enumerate().take(DESCRIPTORS_MAX);
            let mut texts: Vec<String> =
                first.map(|(index, descriptor)| text(index, descriptor)).collect();
            if number > DESCRIPTORS_MAX {
                texts.push(format!("and {} more", number - DESCRIPTORS_MAX));
            }
            texts.join("; ")
        });
        (one.unwrap_or_default(), all)
    }

    /// A descriptor that the rule at this index decided.
    fn text(&self, rules: &RuleSet, descriptor: &Descriptor<'_>, rule: Option<usize>) -> String {
        let rule = rule.and_then(|index| rules.rules().get(index));
        let hash = match self.form {
            LineValues::Plain => None,
            LineValues::Hashed => Some(&self.hash),
            LineValues::None => {
                let keys: Vec<&str> = descriptor.entries.iter().map(|entry| entry.key).collect();
                return excerpt(&keys.join(","), CHARS_MAX);
            }
        };
        let entries = recorded_entries(descriptor, rule, hash);
        let shown = entries.into_iter().map(|(key, value)| match value {
            Cow::Owned(hash) => (key, Cow::Owned(format!("{HASH_MARK}{hash}"))),
            Cow::Borrowed(value) => (key, Cow::Borrowed(value)),
        });
        self.with_secrets_hashed(descriptor.entries, shown.collect())
    }

    /// `shown` as a selector. The values of sensitive keys of `sent` are hashed.
    fn with_secrets_hashed(
        &self,
        sent: &[Entry<'_>],
        mut shown: Vec<(&str, Cow<'_, str>)>,
    ) -> String {
        for (entry, (_, value)) in sent.iter().zip(&mut shown) {
            if is_sensitive(entry.key) {
                *value = Cow::Owned(format!("{HASH_MARK}{}", self.hash.of(entry)));
            }
        }
        let entries: Vec<Entry<'_>> =
            shown.iter().map(|(key, value)| Entry { key, value }).collect();
        excerpt(&descriptor_selector(&entries), CHARS_MAX)
    }
}
