//! The bounds of the regular expressions of a rule set: their number, their memory, and the steps of
//! one lookup.

use std::collections::HashMap;
use std::sync::Arc;

use crate::rules::lookup::matcher::{Matcher, MatcherError};
use crate::rules::lookup::rule::EntryMatcher;

/// Most regular expressions in one rule set.
const REGEXES_MAX: usize = 20_000;
/// Most bytes of all compiled regular expressions in one rule set. This also bounds the time:
/// 10,000 expressions of 1.1 KB compile in about a second.
const REGEX_BYTES_MAX: usize = 128 << 20;
/// Most states of the compiled regular expressions of one key on one level. One value may be tried
/// against all of them, with one step per state and byte. 10,000 short expressions have about
/// 200,000.
pub(in crate::rules) const LEVEL_STATES_MAX: usize = 1 << 18;

/// The regular expressions that were compiled so far, and their bytes.
#[derive(Debug, Default)]
pub(super) struct RegexBudget {
    count: usize,
    bytes: usize,
}

impl RegexBudget {
    /// Compiles one expression, or fails when the budget is spent.
    pub(super) fn compile(
        &mut self,
        text: &Arc<str>,
        count_by: &[Arc<str>],
    ) -> Result<Matcher, MatcherError> {
        self.count += 1;
        if self.count > REGEXES_MAX {
            let hint = "use `value_template` or wildcards where they can say the same";
            return Err((format!("there are already {REGEXES_MAX} regular expressions"), hint));
        }
        if self.bytes > REGEX_BYTES_MAX {
            let hint = "write `[0-9]` for `\\d` and `[0-9A-Za-z_]` for `\\w`, which are smaller";
            let mib = REGEX_BYTES_MAX >> 20;
            return Err((format!("the others already take {mib} MiB when compiled"), hint));
        }
        let matcher = Matcher::regex(Arc::clone(text), count_by)?;
        if let Matcher::Regex(regex) = &matcher {
            self.bytes += regex.compiled_bytes();
        }
        Ok(matcher)
    }
}

/// The states of the expressions of one level, by key.
#[derive(Debug, Default)]
pub(super) struct LevelStates(HashMap<Arc<str>, usize>);

impl LevelStates {
    /// Adds the expression of a node. Fails for the first one of its key over the bound.
    pub(super) fn add(&mut self, entry_matcher: &EntryMatcher) -> Result<(), MatcherError> {
        let Matcher::Regex(regex) = &entry_matcher.matcher else { return Ok(()) };
        let states = self.0.entry(Arc::clone(&entry_matcher.key)).or_default();
        let before = *states;
        *states += regex.states();
        if before > LEVEL_STATES_MAX || *states <= LEVEL_STATES_MAX {
            return Ok(());
        }
        let what = format!(
            "the regular expressions of `{}` on this level need more than {LEVEL_STATES_MAX} steps \
             per byte of a value",
            entry_matcher.key
        );
        let hint = "use `value_template` or wildcards where they can say the same, or write \
                    `[0-9]` for `\\d` and `[0-9A-Za-z_]` for `\\w`";
        Err((what, hint))
    }
}
