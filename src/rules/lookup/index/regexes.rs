//! Finds the first regular expression that accepts a value.
//!
//! Expressions are searched together in two ways. If there are more than 64, an expression with a
//! text that few others require is found by that text and then verified. The rest are compiled in
//! groups into lazy DFAs, each of which finds the first expression of its group in one pass over
//! the value.
//!
//! The remaining cost: 10,000 expressions without a distinguishing text, such as `(?i)` or classes
//! only, are three groups and three passes. If the DFA of a group needs too many states for a value,
//! the expressions of that group are tried one by one, 0.2 us each for short ones.
//!
//! The bound: a lookup searches each expression at most twice, in its group and alone. A search takes
//! at most one step per state and byte of the value. `compile/regex_budget.rs` bounds the states.

use std::fmt;

use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson::{self, Compiler, WhichCaptures};
use regex_automata::util::pool::Pool;
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Hir, HirKind, Look};

use super::literals::{LiteralIndex, Required, Side};
use crate::rules::lookup::matcher::AnchoredRegex;
use crate::rules::lookup::search_steps;

/// The most expressions without an index of required texts. They are one group.
const UNINDEXED_REGEXES_MAX: usize = 64;
/// Most expressions that share a required text. Verifying more candidates takes longer than a pass of
/// a group.
const SHARED_MAX: usize = 2;
/// Most expressions of one group. Each group is one more pass over the value.
const GROUP_MAX: usize = 4096;
/// Most bytes of compiled expressions in one group, or those of [`BYTES_EACH`] if they are more. A
/// larger expression is a group by itself.
const SMALL_GROUP_BYTES_MAX: usize = 512 << 10;
/// Bytes of the DFA of one group, per thread, or those of [`BYTES_EACH`] if they are more.
/// Determinization takes working memory of about the size of the group's NFA in addition.
const SMALL_CACHE_BYTES_MAX: usize = 1 << 20;
/// Bytes per expression of a large group, of its compiled form and of the DFA. A DFA with fewer is
/// cleared again and again while values differ.
const BYTES_EACH: usize = 2 << 10;
/// Most texts of one requirement: `(de|fr|it)` has three.
const TEXTS_MAX: usize = 16;

/// The expressions of one key.
#[derive(Debug, Default)]
pub(super) struct RegexIndex {
    literals: Option<LiteralIndex>,
    groups: Box<[Group]>,
}

/// Expressions that are searched in one pass.
struct Group {
    /// The numbers of the expressions, in rising order.
    numbers: Box<[u32]>,
    /// The states of all expressions.
    states: usize,
    /// `None` when the expressions are too large to be joined.
    dfa: Option<(DFA, Pool<Cache, CreateCache>)>,
}

type CreateCache = Box<dyn Fn() -> Cache + Send + Sync>;

impl RegexIndex {
    pub(super) fn new(regexes: &[(u32, &AnchoredRegex)]) -> RegexIndex {
        RegexIndex::with_unindexed_max(regexes, UNINDEXED_REGEXES_MAX)
    }

    /// An index that uses required texts for more than `unindexed_max` expressions.
    pub(super) fn with_unindexed_max(
        regexes: &[(u32, &AnchoredRegex)],
        unindexed_max: usize,
    ) -> RegexIndex {
        let (literals, rest) = if regexes.len() <= unindexed_max {
            (None, regexes.iter().map(|(number, _)| *number).collect())
        } else {
            let patterns = regexes.iter().map(|(number, one)| (*number, required(&one.hir())));
            LiteralIndex::new(patterns.collect(), SHARED_MAX)
        };
        let mut groups = Vec::new();
        let (mut group, mut bytes) = (Vec::new(), 0);
        let others = regexes.iter().filter(|(number, _)| rest.binary_search(number).is_ok());
        for (number, regex) in others {
            let more = regex.compiled_bytes();
            let bytes_max = SMALL_GROUP_BYTES_MAX.max((group.len() + 1) * BYTES_EACH);
            if group.len() == GROUP_MAX || bytes + more > bytes_max {
                groups.extend(Group::new(&std::mem::take(&mut group)));
                bytes = 0;
            }
            group.push((*number, *regex));
            bytes += more;
        }
        groups.extend(Group::new(&group));
        RegexIndex { literals, groups: groups.into() }
    }

    pub(super) fn first(&self, value: &str, accepts: impl Fn(u32) -> bool) -> Option<u32> {
        let mut found = self.literals.as_ref().and_then(|index| index.first(value, &accepts));
        for group in &self.groups {
            if found.is_some_and(|found| found < group.numbers[0]) {
                continue;
            }
            if let Some(number) = group.first(value, &accepts) {
                found = Some(found.map_or(number, |found| found.min(number)));
            }
        }
        found
    }
}

impl Group {
    /// The group of `regexes`; `None` if there are none.
    fn new(regexes: &[(u32, &AnchoredRegex)]) -> Option<Group> {
        if regexes.is_empty() {
            return None;
        }
        let numbers = regexes.iter().map(|(number, _)| *number).collect();
        let hirs: Vec<Hir> = regexes.iter().map(|(_, regex)| regex.hir()).collect();
        let states = regexes.iter().map(|(_, regex)| regex.states()).sum();
        Some(Group { numbers, states, dfa: dfa(&hirs) })
    }

    fn first(&self, value: &str, accepts: impl Fn(u32) -> bool) -> Option<u32> {
        if let Some((dfa, caches)) = &self.dfa {
            search_steps::record(self.states, value);
            let input = Input::new(value).anchored(Anchored::Yes);
            // Leftmost-first search prefers the first pattern, and every match ends at the end of
            // the value, so the match is the first in the file.
            if let Ok(found) = dfa.try_search_fwd(&mut caches.get(), &input) {
                return found.map(|found| self.numbers[found.pattern().as_usize()]);
            }
        }
        self.numbers.iter().copied().find(|number| accepts(*number))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

fn dfa(hirs: &[Hir]) -> Option<(DFA, Pool<Cache, CreateCache>)> {
    let config = thompson::Config::new().which_captures(WhichCaptures::None);
    let nfa = Compiler::new().configure(config).build_many_from_hir(hirs).ok()?;
    let config = Config::new()
        .cache_capacity(SMALL_CACHE_BYTES_MAX.max(hirs.len() * BYTES_EACH))
        .skip_cache_capacity_check(true)
        // At a Unicode word boundary, values with non-ASCII bytes fall back to single expressions.
        .unicode_word_boundary(true)
        // As in the `regex` crate: after three clears of the cache, a search stops when each new
        // state serves fewer than ten bytes. Single expressions are cheaper then.
        .minimum_cache_clear_count(Some(3))
        .minimum_bytes_per_state(Some(10));
    let dfa = DFA::builder().configure(config).build_from_nfa(nfa).ok()?;
    let create: CreateCache = {
        let dfa = dfa.clone();
        Box::new(move || dfa.create_cache())
    };
    Some((dfa, Pool::new(create)))
}

/// The texts that every value of the anchored expression contains.
fn required(hir: &Hir) -> Vec<Required> {
    let mut pieces = Vec::new();
    flatten(hir, &mut pieces);
    let is_anchor = |piece: &Piece<'_>| match piece {
        Piece::Other(hir) => matches!(hir.kind(), HirKind::Look(Look::Start | Look::End)),
        Piece::Text(_) => false,
    };
    // An anchor has no width, so a text beside an anchor is at that side of the value.
    pieces.retain(|piece| !is_anchor(piece));
    let last = pieces.len().saturating_sub(1);
    let mut required = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => {
                let side = match at {
                    0 => Side::Start,
                    at if at == last => Side::End,
                    _ => Side::Anywhere,
                };
                required.push(Required { side, texts: vec![text.clone()] });
            }
            Piece::Other(hir) => {
                required.extend(inside(hir).map(|texts| Required { side: Side::Anywhere, texts }))
            }
        }
    }
    required
}

/// A part of an expression: a literal text, or anything else.
enum Piece<'h> {
    Text(Vec<u8>),
    Other(&'h Hir),
}

/// Splits concatenations and groups into pieces, and joins adjacent texts.
fn flatten<'h>(hir: &'h Hir, pieces: &mut Vec<Piece<'h>>) {
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Concat(parts) => parts.iter().for_each(|part| flatten(part, pieces)),
        HirKind::Capture(capture) => flatten(&capture.sub, pieces),
        HirKind::Literal(literal) => match pieces.last_mut() {
            Some(Piece::Text(text)) => text.extend_from_slice(&literal.0),
            _ => pieces.push(Piece::Text(literal.0.to_vec())),
        },
        _ => pieces.push(Piece::Other(hir)),
    }
}

/// A set of texts such that every match of the expression contains one of them; `None` if no such
/// set is known.
fn inside(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Repetition(repetition) if repetition.min > 0 => longest(&repetition.sub),
        HirKind::Alternation(branches) => {
            let texts: Option<Vec<Vec<Vec<u8>>>> = branches.iter().map(longest).collect();
            let texts: Vec<Vec<u8>> = texts?.into_iter().flatten().collect();
            (texts.len() <= TEXTS_MAX).then_some(texts)
        }
        _ => None,
    }
}

fn longest(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    flatten(hir, &mut pieces);
    let texts = pieces.into_iter().filter_map(|piece| match piece {
        Piece::Text(text) => Some(vec![text]),
        Piece::Other(hir) => inside(hir),
    });
    texts.max_by_key(|texts| texts.iter().map(Vec::len).min())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::lookup::matcher::Matcher;

    /// The numbers of expressions in the groups of `count` expressions.
    fn groups(count: u32, text: impl Fn(u32) -> String) -> Vec<usize> {
        let regex = |number| match Matcher::regex(text(number).into(), &[]) {
            Ok(Matcher::Regex(regex)) => *regex,
            _ => panic!("a valid expression"),
        };
        let regexes: Vec<AnchoredRegex> = (0..count).map(regex).collect();
        let numbered: Vec<(u32, &AnchoredRegex)> = (0..).zip(&regexes).collect();
        let index = RegexIndex::with_unindexed_max(&numbered, usize::MAX);
        index.groups.iter().map(|group| group.numbers.len()).collect()
    }

    #[test]
    fn small_expressions_have_large_groups() {
        assert_eq!(groups(9_000, |number| format!("[ab]{number:x}")), [4096, 4096, 808]);
        let large = groups(1_000, |number| format!("[a-z]{{100}}{number:x}"));
        assert!(large.iter().all(|len| *len < 1_000), "{large:?}");
    }
}
