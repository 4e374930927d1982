//! The limits of the rules as a gauge, to compare with the rates of their hits.
//!
//! Only rules with a decision have series, so a million rules add none.

use super::exposition::Exposition;
use super::rule_metrics::RuleMetrics;
use crate::limit::Tier;
use crate::rules::{RuleLimit, RuleSet};
use crate::time::Micros;

/// Writes the limit of each tier of `rules` onto the page, with `rule_metrics` of these rules. Two tiers
/// of a rule with windows of one length have one series, with the lower limit.
pub fn expose(rules: &RuleSet, rule_metrics: &RuleMetrics, page: &mut Exposition) {
    let help = "Limit of one counter in the rule files, by rule and window in seconds.";
    let family = page.gauge("weir_limit_requests", help);
    for (rule, series) in rules.rules().iter().zip(rule_metrics.all()) {
        let RuleLimit::Limit(limit) = &rule.limit else { continue };
        if !series.is_used() {
            continue;
        }
        for (window, requests) in by_window(&limit.tiers) {
            let window = in_seconds(window);
            let labels =
                [("domain", &*series.domain), ("rule", &*series.rule), ("window", &window)];
            family.sample(&labels, requests);
        }
    }
}

/// The lowest limit of each window, in the order of the tiers.
fn by_window(tiers: &[Tier]) -> Vec<(Micros, u64)> {
    let mut found: Vec<(Micros, u64)> = Vec::with_capacity(tiers.len());
    for tier in tiers {
        match found.iter_mut().find(|(window, _)| *window == tier.window) {
            Some((_, lowest)) => *lowest = tier.requests.min(*lowest),
            None => found.push((tier.window, tier.requests)),
        }
    }
    found
}

/// `60` for a minute, `0.5` for half a second.
fn in_seconds(window: Micros) -> String {
    (window.0 as f64 / 1e6).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decision::{Code, DecisionReason, Status};
    use crate::rules::{Options, SourceFile, compile};
    use crate::telemetry::SeriesBudget;

    const RULES: &str = "
domain: d
descriptors:
  - key: tiers
    rate_limit:
      tiers:
        - { requests: 5, window: 500ms }
        - { requests: 70, window: 1m }
        - { requests: 60, window: 1m }
  - key: month
    rate_limit: { name: monthly, requests: 9007199254740991, window: { calendar: month } }
  - key: open
    rate_limit: { unlimited: true }
  - key: quiet
    rate_limit: { unit: second, requests_per_unit: 1 }
";

    /// The series after a decision of each rule in `decided`.
    fn lines(decided: &[usize]) -> Vec<String> {
        let file = SourceFile { name: "r.yaml".into(), text: RULES.to_owned() };
        let rules = compile(&[file], &Options::default()).expect("good rules").0;
        let budget = Arc::new(SeriesBudget::new(0));
        let metrics = RuleMetrics::new(&rules, &RuleMetrics::default(), &budget);
        for index in decided {
            let reason = DecisionReason::Bypassed { rule: Some(*index) };
            let (limit, reset_after) = (None, None);
            let status = Status { code: Code::Ok, limit, remaining: 0, reset_after, reason };
            metrics.all()[*index].record(&rules.rules()[*index], &[], &status);
        }
        let mut page = Exposition::default();
        expose(&rules, &metrics, &mut page);
        let text = page.to_prometheus();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn each_window_of_a_used_rule_has_its_limit() {
        let rules = lines(&[0, 1, 2]);
        let expected = [
            r#"weir_limit_requests{domain="d",rule="tiers",window="0.5"} 5"#,
            r#"weir_limit_requests{domain="d",rule="tiers",window="60"} 60"#,
            r#"weir_limit_requests{domain="d",rule="monthly",window="2592000"} 9007199254740991"#,
        ];
        assert_eq!(rules, expected, "none of unlimited rules, none without a decision");
    }

    #[test]
    fn rules_without_a_decision_add_nothing() {
        assert_eq!(lines(&[]), [""; 0]);
    }
}
