//! The rule names of a domain: no two rules have the same.
//!
//! Selectors are unique, and a `name` may be that of several rules, or the selector of another one. The
//! rules with such a `name` are called by their selectors instead. So no text means two rules, whether it
//! is read as a rule name or as a selector.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::rules::excerpt::shorten;
use crate::rules::file::problem::{Location, Report};
use crate::rules::lookup::rule::Rule;

/// What to do about a `name` of several rules.
const HINT: &str = "give each rule its own `name`: until then, metrics, logs and headers call such \
                    a rule by its selector";

/// The use of one `name`.
struct NameUse {
    /// The position of the first rule with it.
    first: usize,
    /// Whether another rule has it too, as its name or as its selector.
    is_shared: bool,
}

/// Gives the `rules` of one domain unique names. A rule with a `name` comes with any rule name: it may have
/// that of an earlier rule set. One without comes with its selector. Returns whether a rule has changed.
pub(super) fn make_unique(rules: &mut [Rule], report: &mut Report) -> bool {
    let mut uses: HashMap<Arc<str>, NameUse> = HashMap::new();
    for (place, rule) in rules.iter().enumerate() {
        let Some(name) = &rule.name else { continue };
        match uses.entry(Arc::clone(name)) {
            Entry::Vacant(free) => {
                free.insert(NameUse { first: place, is_shared: false });
            }
            Entry::Occupied(mut taken) => {
                let known = taken.get_mut();
                known.is_shared = true;
                warn(report, &rule.location, name, "name", &rules[known.first].location);
            }
        }
    }
    // Most files have no names.
    if uses.is_empty() {
        return false;
    }
    for (place, rule) in rules.iter().enumerate() {
        let selector = match &rule.name {
            None => Cow::Borrowed(&*rule.display_name),
            Some(_) => Cow::Owned(rule.selector()),
        };
        let Some(known) = uses.get_mut(&*selector) else { continue };
        if known.is_shared || known.first == place {
            continue;
        }
        known.is_shared = true;
        warn(report, &rules[known.first].location, &selector, "selector", &rule.location);
    }
    let mut has_changed = false;
    for rule in rules {
        let Some(name) = &rule.name else { continue };
        let is_shared = uses.get(name).is_some_and(|known| known.is_shared);
        let wanted = if is_shared { rule.selector().into() } else { Arc::clone(name) };
        if rule.display_name != wanted {
            rule.fields_mut().display_name = wanted;
            has_changed = true;
        }
    }
    has_changed
}

/// Warns that `name`, that of the rule at `location`, is also the `kind` of text of the rule at `other`.
fn warn(report: &mut Report, location: &Location, name: &str, kind: &str, other: &Location) {
    let what = format!("`name: {}` is also the {kind} of the rule at {other}", shorten(name));
    report.warn(location.clone(), what, HINT);
}
