//! The rows of the report: the rules of both rule sets by their domains and names.
//!
//! A rule of the old rules and one of the new rules share a row if they have the same domain and rule
//! name.

use std::collections::HashMap;
use std::sync::Arc;

use crate::decision::DecisionReason;
use crate::rules::{Rule, RuleSet};

/// The row of descriptors that match no rule.
pub(super) const NO_RULE: u32 = 0;

/// The row of descriptors whose limit the proxy sent.
const SENT_LIMIT: u32 = 1;

/// The rows of a report.
#[derive(Debug)]
pub(super) struct RuleRows(Vec<RowName>);

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RowName {
    /// The domain; empty for a row without a rule.
    pub(super) domain: Arc<str>,
    /// The rule name.
    pub(super) rule: Arc<str>,
}

/// The row of each rule of one rule set, by the rule's index.
#[derive(Debug)]
pub(super) struct RowsOfSet(Vec<u32>);

impl RuleRows {
    /// The rows of two rule sets.
    pub(super) fn new(sets: [&RuleSet; 2]) -> (RuleRows, [RowsOfSet; 2]) {
        let without_rule = |text: &str| RowName { domain: "".into(), rule: text.into() };
        let mut rows = vec![without_rule("no rule"), without_rule("limit of the request")];
        let mut known: HashMap<RowName, u32> = HashMap::new();
        let of_sets = sets.map(|set| {
            let row = |rule: &Rule| {
                let name = row_name(rule);
                *known.entry(name).or_insert_with_key(|name| {
                    rows.push(name.clone());
                    (rows.len() - 1) as u32
                })
            };
            RowsOfSet(set.rules().iter().map(row).collect())
        });
        (RuleRows(rows), of_sets)
    }

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The name of each row.
    pub(super) fn names(&self) -> &[RowName] {
        &self.0
    }
}

fn row_name(rule: &Rule) -> RowName {
    RowName { domain: rule.domain.clone(), rule: rule.display_name.clone() }
}

impl RowsOfSet {
    /// The row of a descriptor that was decided for `reason`.
    pub(super) fn row(&self, reason: &DecisionReason) -> u32 {
        let is_counted =
            matches!(reason, DecisionReason::Counted { .. } | DecisionReason::Fallback { .. });
        self.row_of(reason.rule(), is_counted)
    }

    /// The row of a descriptor that matches `rule`, given by its index. Without a rule, a descriptor that
    /// a counter decided has the limit that the proxy sent.
    pub(super) fn row_of(&self, rule: Option<usize>, is_counted: bool) -> u32 {
        match rule {
            Some(index) => self.0.get(index).copied().unwrap_or(NO_RULE),
            None if is_counted => SENT_LIMIT,
            None => NO_RULE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Options, SourceFile, compile};

    fn set(texts: &[&str]) -> RuleSet {
        let file = |(index, text): (usize, &&str)| SourceFile {
            name: format!("{index}.yaml").into(),
            text: (*text).to_owned(),
        };
        let files: Vec<SourceFile> = texts.iter().enumerate().map(file).collect();
        let compiled = compile(&files, &Options::default());
        compiled.unwrap_or_else(|problems| panic!("{problems:#?}")).0
    }

    #[test]
    fn rules_of_one_domain_and_name_share_a_row() {
        let old = set(&["
domain: d
descriptors:
  - { key: user, rate_limit: { name: a, unit: hour, requests_per_unit: 1 } }
  - { key: path, value: /x, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: old, rate_limit: { unlimited: true } }
"]);
        let d = "
domain: d
descriptors:
  - { key: path, value: /x, rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: client, rate_limit: { name: a, unit: hour, requests_per_unit: 2 } }
";
        let e = "
domain: e
descriptors: [{ key: user, rate_limit: { name: a, unit: hour, requests_per_unit: 1 } }]
";
        let new = set(&[d, e]);
        let (rows, [of_old, of_new]) = RuleRows::new([&old, &new]);
        let names: Vec<String> =
            rows.names().iter().map(|name| format!("{}: {}", name.domain, name.rule)).collect();
        assert_eq!(
            names,
            [": no rule", ": limit of the request", "d: a", "d: path=/x", "d: old", "e: a"]
        );
        assert_eq!((of_old.0.as_slice(), of_new.0.as_slice()), (&[2, 3, 4][..], &[3, 2, 5][..]));
        assert_eq!(of_new.row(&DecisionReason::Unlimited(2)), 5);
        assert_eq!(of_new.row(&DecisionReason::NoRule), NO_RULE);
        assert_eq!(of_new.row(&DecisionReason::UnknownDomain), NO_RULE);
    }
}
