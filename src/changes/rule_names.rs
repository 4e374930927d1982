//! Finds the rules that changes name.

use std::collections::{HashMap, HashSet};

use crate::rules::{Rule, RuleSet};

/// The most rules of one name. A change made through weir has a selector, which is unique.
const NAMED_MAX: usize = 16;

/// For each wanted (domain, name), the rule with this selector, or else all rules with this name. One
/// pass over the rules, because selectors are not stored.
pub(super) fn named<'r>(rules: &'r RuleSet, wanted: &[(&str, &str)]) -> Vec<Vec<&'r Rule>> {
    let mut selected: Vec<Vec<&Rule>> = vec![Vec::new(); wanted.len()];
    if wanted.is_empty() {
        return selected;
    }
    let mut labelled = selected.clone();
    let mut places: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    for (place, name) in wanted.iter().enumerate() {
        places.entry(*name).or_default().push(place);
    }
    let domains: HashSet<&str> = wanted.iter().map(|(domain, _)| *domain).collect();
    for rule in rules.rules().iter().filter(|rule| domains.contains(&*rule.domain)) {
        let selector = rule.selector();
        for place in places.get(&(&*rule.domain, &*selector)).into_iter().flatten() {
            selected[*place].push(rule);
        }
        for place in places.get(&(&*rule.domain, &*rule.display_name)).into_iter().flatten() {
            if labelled[*place].len() < NAMED_MAX {
                labelled[*place].push(rule);
            }
        }
    }
    let found = selected.into_iter().zip(labelled);
    found.map(|(selector, label)| if selector.is_empty() { label } else { selector }).collect()
}
