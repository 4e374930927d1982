//! The texts by which the counters of one rule differ: values of a request, or parts of them.

use super::matcher::{CounterPart, Matcher};
use super::rule::Rule;
use crate::descriptor::Entry;

/// The meaning of one of these texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedLabel<'a> {
    /// The key of the entry.
    pub key: &'a str,
    /// The variable of a template, or the group of a regular expression; `None` for the whole value.
    pub variable: Option<&'a str>,
}

impl Rule {
    /// The labels of the texts, in the order of [`Rule::counted_texts`]. None if the rule has one
    /// counter.
    pub fn counted_labels(&self) -> Vec<CountedLabel<'_>> {
        let mut labels = Vec::new();
        for node in self.path.iter().filter(|node| node.counts_per_value()) {
            // All values have the same parts, so the text of the pattern shows them too.
            node.matcher.counter_parts(node.matcher.source(), |part| {
                let variable = match part {
                    CounterPart::Value(_) | CounterPart::Address(_) => None,
                    CounterPart::Variable { name, .. } => Some(name),
                };
                labels.push(CountedLabel { key: &node.key, variable });
            });
        }
        labels
    }

    /// Calls `each` with every text of a descriptor that `find` has matched to this rule. Descriptors
    /// with the same texts have the same counter.
    pub fn counted_texts(&self, entries: &[Entry<'_>], mut each: impl FnMut(&str)) {
        for (node, entry) in self.path.iter().zip(entries) {
            if node.counts_per_value() {
                node.matcher.counter_parts(entry.value, |part| match part {
                    CounterPart::Value(text) | CounterPart::Variable { text, .. } => each(text),
                    CounterPart::Address(address) => each(&address.to_string()),
                });
            }
        }
    }

    /// A descriptor whose counter has these texts. `None` if they do not determine one, because a
    /// level of the rule counts a part of its value, or counts all its values together.
    pub fn counted_entries<'a>(&'a self, texts: &'a [String]) -> Option<Vec<Entry<'a>>> {
        let mut texts = texts.iter();
        let mut entries = Vec::with_capacity(self.path.len());
        for node in self.path.iter() {
            let is_whole = node.counts_per_value() && node.matcher.count_by().is_empty();
            let value: &str = match &node.matcher {
                Matcher::Exact(value) => value,
                _ if is_whole => texts.next()?,
                _ => return None,
            };
            entries.push(Entry { key: &node.key, value });
        }
        texts.next().is_none().then_some(entries)
    }
}
