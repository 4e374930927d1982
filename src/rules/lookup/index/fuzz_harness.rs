//! A harness for fuzzing: finds the first regular expression that accepts a value in three ways.
//!
//! Its users are the fuzz target `rule_regex_lookup` and `tests/random_inputs`, both by
//! `fuzz/src/regexes.rs`. They are other crates, so this module is public, with the feature
//! `fuzz` alone.

use super::regexes::RegexIndex;
use crate::rules::lookup::matcher::{EntryValue, Matcher};

/// The number of the first expression that accepts a value. All ways must have the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstRegex {
    /// Found by required texts where possible, as among many expressions.
    pub by_texts: Option<u32>,
    /// Found in automata of several expressions, as among few expressions.
    pub by_automata: Option<u32>,
    /// Found by a scan of single expressions.
    pub by_scan: Option<u32>,
}

/// Looks `value` up among `regexes`. Invalid expressions are left out.
pub fn first_regex(regexes: &[&str], value: &str) -> FirstRegex {
    let valid = |text: &&str| Matcher::regex((*text).into(), &[]).ok();
    let matchers: Vec<Matcher> = regexes.iter().filter_map(valid).collect();
    let mut numbered = Vec::new();
    for (number, matcher) in (0_u32..).zip(&matchers) {
        if let Matcher::Regex(regex) = matcher {
            numbered.push((number, &**regex));
        }
    }
    let value = EntryValue::new(value);
    let accepts = |number: u32| matchers[number as usize].matches(&value);
    let indexed = |unindexed_max| {
        let index = RegexIndex::with_unindexed_max(&numbered, unindexed_max);
        index.first(value.text(), accepts)
    };
    FirstRegex {
        by_texts: indexed(0),
        by_automata: indexed(usize::MAX),
        by_scan: numbered.iter().map(|(number, _)| *number).find(|number| accepts(*number)),
    }
}
