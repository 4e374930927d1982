//! Finds patterns by a text that every value they accept must contain.
//!
//! The rarest required text of each pattern goes into one Aho-Corasick automaton. A lookup runs the
//! value through it once and verifies only the patterns whose text occurs, in file order. The index
//! does not cover patterns without such a text, or with texts that too many patterns share.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;

use aho_corasick::AhoCorasick;

/// The side of a value that must have a required text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Start,
    End,
    Anywhere,
}

/// A requirement: the value has one of these texts on that side.
#[derive(Clone, Debug)]
pub(super) struct Required {
    pub(super) side: Side,
    pub(super) texts: Vec<Vec<u8>>,
}

/// Patterns by required text.
#[derive(Debug)]
pub(super) struct LiteralIndex {
    automaton: AhoCorasick,
    /// Per text of the automaton, the patterns that require it.
    owners: Box<[Vec<(Side, u32)>]>,
    /// Most candidates in memory before they are sorted.
    candidates_max: usize,
}

thread_local! {
    /// Candidates of the current lookup, kept per thread so that lookups do not allocate.
    static CANDIDATES: Cell<Vec<u32>> = const { Cell::new(Vec::new()) };
}

impl LiteralIndex {
    /// Indexes patterns by their requirements. At most `shared_max` patterns may share a text: each of
    /// them is a candidate if a value has the text. Returns the index, unless it is empty, and the
    /// numbers of the patterns that it does not cover, in their order.
    pub(super) fn new(
        patterns: Vec<(u32, Vec<Required>)>,
        shared_max: usize,
    ) -> (Option<LiteralIndex>, Vec<u32>) {
        let mut shares: HashMap<Vec<u8>, usize> = HashMap::new();
        for text in patterns.iter().flat_map(|(_, all)| all).flat_map(|one| &one.texts) {
            *shares.entry(text.clone()).or_default() += 1;
        }
        let mut texts: Vec<Vec<u8>> = Vec::new();
        let mut owners: Vec<Vec<(Side, u32)>> = Vec::new();
        let mut by_text: HashMap<Vec<u8>, usize> = HashMap::new();
        let (mut rest, mut len) = (Vec::new(), 0);
        for (number, required) in patterns {
            let Some(rarest) = rarest(required, &shares, shared_max) else {
                rest.push(number);
                continue;
            };
            len += 1;
            for text in rarest.texts {
                let at = *by_text.entry(text).or_insert_with_key(|text| {
                    texts.push(text.clone());
                    owners.push(Vec::new());
                    texts.len() - 1
                });
                owners[at].push((rarest.side, number));
            }
        }
        if texts.is_empty() {
            return (None, rest);
        }
        let Ok(automaton) = AhoCorasick::new(&texts) else {
            // There are more texts than the automaton can number.
            let covered = owners.iter().flatten().map(|(_, number)| *number);
            rest.extend(covered);
            rest.sort_unstable();
            rest.dedup();
            return (None, rest);
        };
        let candidates_max = 2 * len + shared_max;
        (Some(LiteralIndex { automaton, owners: owners.into(), candidates_max }), rest)
    }

    /// The lowest number of a pattern in the index that accepts the value.
    pub(super) fn first(&self, value: &str, accepts: impl Fn(u32) -> bool) -> Option<u32> {
        let mut candidates = CANDIDATES.take();
        candidates.clear();
        for found in self.automaton.find_overlapping_iter(value) {
            for (side, number) in &self.owners[found.pattern()] {
                let fits = match side {
                    Side::Start => found.start() == 0,
                    Side::End => found.end() == value.len(),
                    Side::Anywhere => true,
                };
                if fits {
                    candidates.push(*number);
                }
            }
            // A value may repeat a text any number of times.
            if candidates.len() > self.candidates_max {
                candidates.sort_unstable();
                candidates.dedup();
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        let found = candidates.iter().copied().find(|number| accepts(*number));
        CANDIDATES.set(candidates);
        found
    }
}

/// The requirement that the fewest patterns share, then the longest.
fn rarest(
    required: Vec<Required>,
    shares: &HashMap<Vec<u8>, usize>,
    shared_max: usize,
) -> Option<Required> {
    let shared = |one: &Required| one.texts.iter().map(|text| shares[text]).max();
    let shortest = |one: &Required| one.texts.iter().map(Vec::len).min();
    required
        .into_iter()
        .filter(|one| shared(one).is_some_and(|shared| shared <= shared_max))
        .filter(|one| shortest(one) > Some(0))
        .min_by_key(|one| (shared(one), Reverse(shortest(one))))
}
