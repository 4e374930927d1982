//! Logs warnings and problems of rules, and remembers the texts that the log had a short time ago.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::rules::RuleProblem;
use crate::time::Micros;

/// How long a text is remembered.
const KEPT_FOR: Micros = Micros::from_secs(10 * 60);

/// Most texts in memory. When it is full, all are forgotten.
const TEXTS_MAX: usize = 10_000;

/// Remembers texts, so that rules that change back and forth do not fill the log.
#[derive(Debug, Default)]
pub(super) struct LoggedTexts {
    /// When a text was logged, by its hash.
    times: HashMap<u64, Micros>,
}

impl LoggedTexts {
    /// Whether the log should have this text at `now`. If so, it is remembered.
    pub(super) fn is_new(&mut self, text: &str, now: Micros) -> bool {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        let is_recent = |at: &Micros| now.saturating_sub(*at) < KEPT_FOR;
        if self.times.get(&hash).is_some_and(is_recent) {
            return false;
        }
        if self.times.len() >= TEXTS_MAX {
            self.times.retain(|_, at| is_recent(at));
        }
        if self.times.len() >= TEXTS_MAX {
            self.times.clear();
        }
        self.times.insert(hash, now);
        true
    }
}

/// Logs the warnings that are not in `before`, and were not logged a short time ago.
pub(super) fn log_new_warnings(
    warnings: &[String],
    before: &[String],
    logged: &mut LoggedTexts,
    now: Micros,
) {
    let before: HashSet<&String> = before.iter().collect();
    for warning in warnings.iter().filter(|warning| !before.contains(warning)) {
        if logged.is_new(warning, now) {
            tracing::warn!("{warning}");
        }
    }
}

/// Logs the problems of rules, one line each.
pub(super) fn log_problems(problems: &[RuleProblem]) {
    for problem in problems {
        tracing::error!("{problem}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_new_again_after_a_while() {
        let mut logged = LoggedTexts::default();
        let start = Micros::from_secs(1_000);
        assert!(logged.is_new("a", start));
        assert!(logged.is_new("b", start));
        assert!(!logged.is_new("a", start.saturating_add(Micros::from_secs(599))));
        assert!(logged.is_new("a", start.saturating_add(KEPT_FOR)));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut logged = LoggedTexts::default();
        for number in 0..3 * TEXTS_MAX {
            assert!(logged.is_new(&number.to_string(), Micros::SECOND));
            assert!(logged.times.len() <= TEXTS_MAX);
        }
    }
}
