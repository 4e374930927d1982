//! Finds the first wildcard that accepts a value.
//!
//! Up to 16 wildcards are tried one by one. More are indexed by their literal parts.

use super::literals::{LiteralIndex, Required, Side};
use crate::rules::lookup::matcher::Wildcard;

/// The most wildcards without an index. Trying them costs no more than one run of an automaton.
const UNINDEXED_WILDCARDS_MAX: usize = 16;
/// Most wildcards that share a required text. A text shared by more excludes too few candidates.
const SHARED_MAX: usize = 16;

/// The wildcards of one key.
#[derive(Debug, Default)]
pub(super) struct WildcardIndex {
    literals: Option<LiteralIndex>,
    /// Wildcards that are tried one by one, in file order.
    rest: Box<[u32]>,
}

impl WildcardIndex {
    pub(super) fn new(wildcards: &[(u32, &Wildcard)]) -> WildcardIndex {
        if wildcards.len() <= UNINDEXED_WILDCARDS_MAX {
            let rest = wildcards.iter().map(|(number, _)| *number).collect();
            return WildcardIndex { literals: None, rest };
        }
        let patterns = wildcards.iter().map(|(number, wildcard)| (*number, required(wildcard)));
        let (literals, rest) = LiteralIndex::new(patterns.collect(), SHARED_MAX);
        WildcardIndex { literals, rest: rest.into() }
    }

    pub(super) fn first(&self, value: &str, accepts: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.literals.as_ref().and_then(|index| index.first(value, &accepts));
        let earlier = |number: &u32| found.is_none_or(|found| *number < found);
        let rest = self.rest.iter().copied().take_while(earlier);
        rest.into_iter().find(|number| accepts(*number)).or(found)
    }
}

fn required(wildcard: &Wildcard) -> Vec<Required> {
    let one = |side, text: &str| Required { side, texts: vec![text.as_bytes().to_vec()] };
    let (first, middle, last) = wildcard.parts();
    let mut required = vec![one(Side::Start, first), one(Side::End, last)];
    required.extend(middle.iter().map(|part| one(Side::Anywhere, part)));
    required
}
