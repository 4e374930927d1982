//! Finds near misses: rules that a descriptor almost matches, and the differences.

use serde::Serialize;

use super::node_text::{accepts, entry_text};
use crate::descriptor::Entry;
use crate::rules::excerpt::shorten;
use crate::rules::file::problem::Location;
use crate::rules::lookup::matcher::{EntryValue, Matcher};
use crate::rules::lookup::rule::{EntryMatcher, Rule};
use crate::rules::lookup::tree::{Level, RuleTreeNode};
use crate::spelling;

/// Most near misses of one explanation.
const NEAR_MISSES_MAX: usize = 3;

/// A rule that a descriptor almost matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NearMiss {
    /// The first characters of the rule name.
    pub rule: String,
    /// The rule's position in its file.
    pub location: Location,
    /// The differences between rule and descriptor.
    pub differs: Vec<String>,
}

/// The closest rules, closest first, then in file order. `taken` are the nodes on the path of the
/// lookup.
pub(super) fn nearest(
    root: &Level,
    entries: &[Entry<'_>],
    taken: &[&RuleTreeNode],
) -> Vec<NearMiss> {
    let mut found = Vec::new();
    collect(root, entries, &mut found);
    found.sort_by_key(|(cost, rule)| (*cost, rule.index));
    found.truncate(NEAR_MISSES_MAX);
    let near_miss = |(_, rule): (usize, &Rule)| {
        let differs = differences(rule, entries, taken);
        NearMiss { rule: shorten(&rule.display_name), location: rule.location.clone(), differs }
    };
    found.into_iter().map(near_miss).collect()
}

/// Collects every rule that shares a key with the descriptor, with its distance.
fn collect<'t>(level: &'t Level, entries: &[Entry<'_>], found: &mut Vec<(usize, &'t Rule)>) {
    for node in level.nodes() {
        if let Some(rule) = node.rule()
            && let Some(cost) = cost(rule, entries)
        {
            found.push((cost, rule));
        }
        if let Some(children) = &node.children {
            collect(children, entries, found);
        }
    }
}

/// A wrong value costs 1, a missing or extra entry 2, a wrong key 3. `None` when no key agrees.
fn cost(rule: &Rule, entries: &[Entry<'_>]) -> Option<usize> {
    if other_order(rule, entries) {
        return Some(1);
    }
    let mut cost = 2 * rule.path.len().abs_diff(entries.len());
    let mut common = entries.is_empty() && rule.path.len() == 1;
    for (node, entry) in rule.path.iter().zip(entries) {
        if *node.key == *entry.key {
            common = true;
            cost += usize::from(!node.matcher.matches(&EntryValue::new(entry.value)));
        } else {
            common |= is_misspelt(&node.key, entry.key);
            cost += 3;
        }
    }
    common.then_some(cost)
}

fn is_misspelt(wanted: &str, written: &str) -> bool {
    spelling::nearest(written, [wanted]).is_some()
}

/// Whether the keys are the same in another order.
fn other_order(rule: &Rule, entries: &[Entry<'_>]) -> bool {
    let mut wanted: Vec<&str> = rule.path.iter().map(|node| &*node.key).collect();
    let mut written: Vec<&str> = entries.iter().map(|entry| entry.key).collect();
    if wanted == written {
        return false;
    }
    wanted.sort_unstable();
    written.sort_unstable();
    wanted == written
}

fn differences(rule: &Rule, entries: &[Entry<'_>], taken: &[&RuleTreeNode]) -> Vec<String> {
    if other_order(rule, entries) {
        let keys: Vec<_> = rule.path.iter().map(|node| shorten(&node.key)).collect();
        return vec![format!("its entries have the order {}", keys.join(", "))];
    }
    let mut differs = Vec::new();
    for (index, (node, entry)) in rule.path.iter().zip(entries).enumerate() {
        let (key, value) = (shorten(entry.key), shorten(entry.value));
        if *node.key != *entry.key {
            let wanted = shorten(&node.key);
            differs.push(format!("entry {} is `{key}`, not `{wanted}`", index + 1));
        } else if !node.matcher.matches(&EntryValue::new(entry.value)) {
            differs.push(match &node.matcher {
                Matcher::Exact(wanted) => format!("value `{value}` is not `{}`", shorten(wanted)),
                other => {
                    let source = shorten(other.source());
                    format!("value `{value}` does not match {} `{source}`", other.noun())
                }
            });
        }
    }
    for node in rule.path.iter().skip(entries.len()) {
        differs.push(format!("it is deeper: it needs one more entry, {}", accepts(node)));
    }
    for entry in entries.iter().skip(rule.path.len()) {
        differs.push(format!("it ends before entry `{}`", entry_text(entry)));
    }
    if differs.is_empty() {
        differs.extend(overtaken(&rule.path, taken));
    }
    differs
}

/// The more specific node that accepted an entry instead of the rule's node, as a text.
fn overtaken(path: &[std::sync::Arc<EntryMatcher>], taken: &[&RuleTreeNode]) -> Option<String> {
    // No two nodes of a level are equal. Equal ones may be two in memory, because a rule may have its path
    // from an earlier set of rules.
    let mut levels = path.iter().zip(taken);
    let other = levels.find(|(node, accepted)| **node != accepted.entry_matcher);
    other.map(|(_, node)| {
        let location = node.location();
        format!("it would match, but {location} is more specific, and the lookup never goes back")
    })
}
