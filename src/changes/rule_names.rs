//! Finds the rules that changes name, and their names in lists and in the log.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::change::{ChangeTarget, TemporaryChange};
use crate::rules::{Rule, RuleSet};

/// The most rules of one `name`. A change made through weir has a selector, which is unique.
const NAMED_MAX: usize = 16;

/// The rule of a change, in lists and in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRule {
    /// The rule name.
    pub name: Arc<str>,
    /// The selector, if the rule name is another text.
    pub selector: Option<String>,
}

impl NamedRule {
    /// The rule of a change that no list has. `None` if it has no rule, or several. Takes one pass over the
    /// rules.
    pub fn of(change: &TemporaryChange, rules: &RuleSet) -> Option<NamedRule> {
        let ChangeTarget::Rule(name) = &change.target else { return None };
        NamedRule::only(&named(rules, &[(change.domain.as_str(), name.as_str())]).pop()?)
    }

    /// The only rule of `found`.
    pub(super) fn only(found: &[&Rule]) -> Option<NamedRule> {
        let [rule] = found else { return None };
        Some(NamedRule { name: rule.display_name.clone(), selector: rule.other_selector() })
    }
}

/// For each wanted (domain, name), the rule with this rule name or selector, or else all rules with this
/// `name`. One pass over the rules, because most selectors are not stored.
pub(super) fn named<'r>(rules: &'r RuleSet, wanted: &[(&str, &str)]) -> Vec<Vec<&'r Rule>> {
    let mut called: Vec<Vec<&Rule>> = vec![Vec::new(); wanted.len()];
    if wanted.is_empty() {
        return called;
    }
    let mut sharing = called.clone();
    let mut places: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    for (place, name) in wanted.iter().enumerate() {
        places.entry(*name).or_default().push(place);
    }
    let domains: HashSet<&str> = wanted.iter().map(|(domain, _)| *domain).collect();
    for rule in rules.rules().iter().filter(|rule| domains.contains(&*rule.domain)) {
        let selector = rule.other_selector();
        for text in [Some(&*rule.display_name), selector.as_deref()].into_iter().flatten() {
            for place in places.get(&(&*rule.domain, text)).into_iter().flatten() {
                called[*place].push(rule);
            }
        }
        let Some(name) = rule.name.as_deref() else { continue };
        for place in places.get(&(&*rule.domain, name)).into_iter().flatten() {
            if sharing[*place].len() < NAMED_MAX {
                sharing[*place].push(rule);
            }
        }
    }
    let found = called.into_iter().zip(sharing);
    found.map(|(called, sharing)| if called.is_empty() { sharing } else { called }).collect()
}
