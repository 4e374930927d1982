//! Matches a value against one regular expression, from its first to its last character.
//!
//! Time is linear in the value: the engine has no look-around and no back-references. One
//! expression is a Thompson NFA, about 1.1 KB for `/v1/product/[0-9]+/item-7`, and is searched by a
//! bounded backtracker. The `regex` crate takes 15 KB per expression and ten times as long to build
//! it, which matters with 10,000 expressions. `index/regexes.rs` searches the expressions of a
//! level together. Here one candidate is verified and its groups are captured.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use regex_automata::nfa::thompson::backtrack::{BoundedBacktracker, Cache};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{Compiler, Config, NFA, WhichCaptures};
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchError, PatternID};
use regex_syntax::hir::Hir;
use smallvec::{SmallVec, smallvec};

use super::MatcherError;
use crate::rules::lookup::search_steps;

/// A regular expression that must match from the first character to the last.
#[derive(Clone)]
pub(in crate::rules) struct AnchoredRegex {
    source: Arc<str>,
    backtracker: BoundedBacktracker,
    count_by: Box<[Arc<str>]>,
    /// Group numbers of `count_by`.
    groups: Box<[usize]>,
}

/// Largest compiled form, in bytes: room for any sensible expression, none for `(a{1000}){1000}`.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Most states of the compiled form. A search takes at most one step per state and byte of the
/// value, so counted repetitions like `(a?){1500}a{1500}` would take milliseconds per value.
pub(in crate::rules) const STATES_MAX: usize = 4096;

const SYNTAX_HINT: &str =
    "the syntax is that of docs.rs/regex; it has no look-around and no back-references";

thread_local! {
    /// Working memory of the backtracker, one per thread for all expressions, at most 256 KiB.
    /// Threads share no lock, and a search allocates only if it needs more than all earlier
    /// searches.
    static CACHE: Cell<Option<Cache>> = const { Cell::new(None) };
}

/// Start and end of each capture group.
type CaptureSlots = SmallVec<[Option<NonMaxUsize>; 32]>;

impl AnchoredRegex {
    pub(super) fn new(
        source: Arc<str>,
        count_by: &[Arc<str>],
    ) -> Result<AnchoredRegex, MatcherError> {
        // Parsed without anchors first: `a)|(b` is valid only inside the anchoring group.
        parse(&source)?;
        let hir = parse(&anchored(&source))?;
        // Capture groups cost memory, so they are compiled only with `count_by`.
        let captures = if count_by.is_empty() { WhichCaptures::None } else { WhichCaptures::All };
        let config =
            Config::new().nfa_size_limit(Some(COMPILED_BYTES_MAX)).which_captures(captures);
        let too_large =
            || ("it is too large when compiled".to_owned(), "repeat less, or split the rule");
        let nfa =
            Compiler::new().configure(config).build_from_hir(&hir).map_err(|_| too_large())?;
        if nfa.states().len() > STATES_MAX {
            let what = format!("it needs more than {STATES_MAX} steps per byte of a value");
            return Err((what, "repeat less, write `[0-9]` for `\\d`, or use `value_template`"));
        }
        let mut groups = Vec::with_capacity(count_by.len());
        for wanted in count_by {
            match nfa.group_info().to_index(PatternID::ZERO, wanted) {
                Some(group) => groups.push(group),
                None => {
                    let hint = "name a group with `(?<name>...)`";
                    return Err((format!("it has no group `{wanted}` to count by"), hint));
                }
            }
        }
        let backtracker = BoundedBacktracker::new_from_nfa(nfa).map_err(|_| too_large())?;
        Ok(AnchoredRegex { source, backtracker, count_by: count_by.into(), groups: groups.into() })
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn count_by(&self) -> &[Arc<str>] {
        &self.count_by
    }

    /// The parsed expression with its anchors.
    pub(in crate::rules) fn hir(&self) -> Hir {
        parse(&anchored(&self.source)).expect("it was parsed before")
    }

    /// Bytes of the compiled form.
    pub(in crate::rules) fn compiled_bytes(&self) -> usize {
        self.nfa().memory_usage()
    }

    /// States of the compiled form. A search takes at most one step per state and byte.
    pub(in crate::rules) fn states(&self) -> usize {
        self.nfa().states().len()
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        self.search(value, &mut [])
    }

    /// Calls `each` with the name and text of every counted group, in the order of `count_by`. A
    /// group outside the match is empty.
    pub(super) fn captured<'a>(&'a self, value: &'a str, mut each: impl FnMut(&'a str, &'a str)) {
        let mut capture_slots: CaptureSlots = smallvec![None; self.nfa().group_info().slot_len()];
        self.search(value, &mut capture_slots);
        for (name, group) in self.count_by.iter().zip(&self.groups) {
            let text = match capture_slots.get(2 * group..2 * group + 2) {
                Some([Some(start), Some(end)]) => &value[start.get()..end.get()],
                _ => "",
            };
            each(name, text);
        }
    }

    fn nfa(&self) -> &NFA {
        self.backtracker.get_nfa()
    }

    fn search(&self, value: &str, capture_slots: &mut [Option<NonMaxUsize>]) -> bool {
        search_steps::record(self.states(), value);
        let input = Input::new(value).anchored(Anchored::Yes);
        let mut cache = CACHE.take().unwrap_or_else(|| self.backtracker.create_cache());
        cache.reset(&self.backtracker);
        let found = self.backtracker.try_search_slots(&mut cache, &input, capture_slots);
        CACHE.set(Some(cache));
        let found = found.or_else(|_too_long: MatchError| {
            // The backtracker visits at most 2 million pairs of state and byte. The PikeVM has no
            // such bound and is linear too, but allocates its working memory.
            let engine =
                PikeVM::new_from_nfa(self.nfa().clone()).expect("the NFA fits both engines");
            let mut cache = engine.create_cache();
            Ok::<_, MatchError>(engine.search_slots(&mut cache, &input, capture_slots))
        });
        found.is_ok_and(|pattern| pattern.is_some())
    }
}

impl fmt::Debug for AnchoredRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnchoredRegex").field(&self.source).finish()
    }
}

fn anchored(source: &str) -> String {
    format!(r"\A(?:{source})\z")
}

fn parse(text: &str) -> Result<Hir, MatcherError> {
    syntax::parse(text).map_err(|error| {
        // The parser's message has several lines; the last one is the problem.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        (last.trim_start_matches("error: ").to_owned(), SYNTAX_HINT)
    })
}
#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    #[test]
    fn a_pattern_covers_the_whole_value() {
        for (pattern, yes, no) in [
            ("a|b", vec!["a", "b"], vec!["ab", "xa", "bx", ""]),
            ("a.*", vec!["a", "abc"], vec!["ba", "a\n"]),
            ("(?m)^a$", vec!["a"], vec!["a\nb", "b\na"]),
            ("(?i)get|post", vec!["GET", "Post"], vec!["put"]),
            ("[0-9]{3}", vec!["123"], vec!["1234", "12"]),
        ] {
            let matcher = AnchoredRegex::new(pattern.into(), &[]).expect(pattern);
            for value in yes {
                assert!(matcher.matches(value), "{pattern} {value:?}");
            }
            for value in no {
                assert!(!matcher.matches(value), "{pattern} {value:?}");
            }
        }
    }

    #[test]
    fn a_pattern_captures_the_groups_it_counts_by() {
        let count_by: [Arc<str>; 2] = ["b".into(), "a".into()];
        let pattern = AnchoredRegex::new("(?<a>.)(?<b>x)?(.)".into(), &count_by).expect("valid");
        let mut parts = Vec::new();
        pattern.captured("12", |name, part| parts.push((name, part)));
        assert_eq!(parts, [("b", ""), ("a", "1")]);
    }

    proptest! {
        /// The expression matches and captures the same as in the `regex` crate.
        #[test]
        fn captures_agree_with_the_regex_crate(
            pieces in vec(select(PIECES.to_vec()), 1..5), value in "[abx/1é]{0,8}",
        ) {
            let source = format!("(?<g>{})(?<h>/.*)?(?<g2>x?)", pieces.concat());
            let count_by: [Arc<str>; 3] = ["g2".into(), "h".into(), "g".into()];
            let ours = AnchoredRegex::new(source.as_str().into(), &count_by).expect("valid");
            let theirs = regex::Regex::new(&format!("^(?:{source})$")).expect("valid");
            prop_assert_eq!(ours.matches(&value), theirs.is_match(&value));
            if let Some(captures) = theirs.captures(&value) {
                let mut parts = Vec::new();
                ours.captured(&value, |name, part| parts.push((name, part)));
                let text = |name| captures.name(name).map_or("", |group| group.as_str());
                prop_assert_eq!(parts, ["g2", "h", "g"].map(|name| (name, text(name))));
            }
        }
    }

    const PIECES: [&str; 12] =
        ["a", "b", "(a|ab)", "(?:b|/)*", ".", "[^/]+", "x?", r"\b", "(?i:A)", "é", r"\d", "a*?"];

    /// The value has more pairs of state and byte than the backtracker visits.
    #[test]
    fn a_long_value_is_matched_by_another_engine() {
        let count_by: [Arc<str>; 1] = ["b".into()];
        let regex = AnchoredRegex::new("a{2000}[^b]*(?<b>b+)".into(), &count_by).expect("valid");
        let value = "a".repeat(50_000) + "bb";
        assert!(regex.matches(&value) && !regex.matches(&value[..50_000]));
        regex.captured(&value, |name, part| assert_eq!((name, part), ("b", "bb")));
    }

    #[test]
    fn invalid_patterns_are_rejected_in_one_line() {
        for bad in [
            "(",
            "a)|(b",
            "(?=a)",
            r"\1",
            "(a{1000}){1000}",
            "(a?){1500}a{1500}",
            "(?x) a # comment",
        ] {
            let (why, hint) = AnchoredRegex::new(bad.into(), &[]).expect_err(bad);
            assert!(!why.is_empty() && !why.contains('\n') && !hint.is_empty(), "{bad}: {why}");
        }
        assert!(AnchoredRegex::new("(?<a>.)".into(), &["b".into()]).is_err());
    }
}
