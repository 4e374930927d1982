//! Tests of rules as a whole, mostly by tables.

use super::*;
use crate::key::{CounterKey, KeySeed};

mod calendar;
mod costs;
mod counted_texts;
mod explaining;
mod files;
mod folders;
mod limit_from;
mod matching;
mod overlays;
mod random;
mod regex_steps;
mod rule_names;
mod selectors;
mod sharing;
mod stats;
mod what_if;
mod yaml_forms;

/// A rule set from one text that must compile without warnings.
fn rules(text: &str) -> RuleSet {
    let (set, warnings) = compiled(text, &Options::default()).unwrap_or_else(|p| panic!("{p:#?}"));
    assert!(warnings.is_empty(), "{warnings:#?}");
    set
}

fn compiled(
    text: &str,
    options: &Options,
) -> Result<(RuleSet, Vec<RuleProblem>), Vec<RuleProblem>> {
    compile(&[file("test.yaml", text)], options)
}

fn file(name: &str, text: &str) -> SourceFile {
    SourceFile { name: name.into(), text: text.to_owned() }
}

/// `k=v,k=v` as entries.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    let entry = |pair| {
        let (key, value) = str::split_once(pair, '=').expect("write k=v");
        Entry { key, value }
    };
    pairs.map(entry).collect()
}

/// The rule of `k=v,k=v` in domain `d`.
fn found<'r>(set: &'r RuleSet, text: &str) -> Option<&'r Rule> {
    match set.find("d", &entries(text)) {
        Found::Rule(rule) => Some(rule),
        Found::NoRule => None,
        Found::UnknownDomain => panic!("domain d is not defined"),
    }
}

/// The counter of `k=v,k=v` in domain `d`.
fn counter(set: &RuleSet, text: &str) -> Option<CounterKey> {
    let rule = found(set, text)?;
    Some(rule.key(&KeySeed::fixed([1, 2]), &entries(text)))
}
