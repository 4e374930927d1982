//! Finds the first pattern of a level that accepts a value without trying every pattern.
//!
//! The patterns of one key are indexed by kind: templates in a trie of segments, regular
//! expressions by required literals and in automata of many, networks in sorted ranges, wildcards
//! by required literals. The result is that of a plain scan in order of precedence.

use self::networks::NetworkTable;
use self::regexes::RegexIndex;
use self::templates::TemplateTrie;
use self::wildcards::WildcardIndex;
use super::matcher::{EntryValue, Matcher, PatternKind};

#[cfg(feature = "fuzz")]
pub mod fuzz_harness;
mod literals;
mod networks;
mod regexes;
mod templates;
#[cfg(test)]
mod tests;
mod wildcards;

/// The patterns of one key.
#[derive(Debug, Default)]
pub(super) struct PatternIndex {
    templates: TemplateTrie,
    regexes: RegexIndex,
    networks: NetworkTable,
    wildcards: WildcardIndex,
}

impl PatternIndex {
    /// Indexes matchers with their numbers, which rise in file order.
    pub(super) fn new<'m>(matchers: impl Iterator<Item = (u32, &'m Matcher)>) -> PatternIndex {
        let (mut templates, mut networks) = (TemplateTrie::default(), Vec::new());
        let (mut regexes, mut wildcards) = (Vec::new(), Vec::new());
        for (number, matcher) in matchers {
            match matcher {
                Matcher::Template(template) => templates.insert(number, template),
                Matcher::Regex(regex) => regexes.push((number, &**regex)),
                Matcher::Cidr(network) => networks.push((number, network.net)),
                Matcher::Wildcard(wildcard) => wildcards.push((number, &**wildcard)),
                Matcher::Exact(_) | Matcher::Any => {}
            }
        }
        PatternIndex {
            templates,
            regexes: RegexIndex::new(&regexes),
            networks: NetworkTable::new(&networks),
            wildcards: WildcardIndex::new(&wildcards),
        }
    }

    /// The number of the first matcher that accepts the value: of the kind that comes first in
    /// [`PatternKind::BY_PRECEDENCE`], the first in the file. `accepts` tries the matcher with that
    /// number alone.
    pub(super) fn first(
        &self,
        value: &EntryValue<'_>,
        accepts: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        PatternKind::BY_PRECEDENCE.into_iter().find_map(|kind| match kind {
            PatternKind::Template => self.templates.first(value),
            PatternKind::Regex => self.regexes.first(value.text(), &accepts),
            PatternKind::Cidr => self.networks.first(value),
            PatternKind::Wildcard => self.wildcards.first(value.text(), &accepts),
        })
    }
}
