//! Tests of the series that a metrics page shows.

use std::sync::Arc;

use super::{RuleMetrics, SeriesBudget, ZERO_SERIES_MAX};
use crate::decision::{Code, DecisionReason, Status};
use crate::rules::{Options, SourceFile, compile};

/// The number of series on a page of `rules` rules of which the last has decided.
fn shown(rules: usize) -> usize {
    let rule =
        |index| format!("  - {{ key: k, value: v{index}, rate_limit: {{ unlimited: true }} }}\n");
    let text: String = (0..rules).map(rule).collect();
    let file =
        SourceFile { name: "r.yaml".into(), text: format!("domain: d\ndescriptors:\n{text}") };
    let rules = compile(&[file], &Options::default()).expect("good rules").0;
    let budget = Arc::new(SeriesBudget::new(0));
    let metrics = RuleMetrics::new(&rules, &RuleMetrics::default(), &budget);
    let last = rules.rules().last().expect("a rule");
    let reason = DecisionReason::Bypassed { rule: Some(last.index) };
    let status = Status { code: Code::Ok, limit: None, remaining: 0, reset_after: None, reason };
    metrics.all()[last.index].record(last, &[], &status);
    metrics.all().iter().filter(|series| metrics.shows(series)).count()
}

#[test]
fn pages_of_many_rules_have_no_zeros() {
    assert_eq!(shown(ZERO_SERIES_MAX), ZERO_SERIES_MAX);
    assert_eq!(shown(ZERO_SERIES_MAX + 1), 1, "the rule that has decided");
}
