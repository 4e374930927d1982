//! The warning about a changed limit of a rule that takes its numbers from plans.

use super::change::{ChangeAction, ChangeTarget, TemporaryChange, entries};
use super::rule_names::named;
use crate::rules::{Found, RuleSet};

/// The warning about a changed rule.
const OF_RULE: &str = "the rule takes its numbers from plans (`limit_from`); until the change \
                       ends, its numbers replace those of every plan, higher and lower ones and \
                       `unlimited`; to change one customer only, change the limit of the \
                       descriptor, or the plan";

/// The warning about a changed descriptor.
const OF_DESCRIPTOR: &str = "the rule takes its numbers from plans (`limit_from`); until the \
                             change ends, its numbers replace those of the plan of this \
                             descriptor, also if the plan changes";

/// What a caller of `change` may not expect: a changed limit replaces the numbers of plans. `None` without
/// a rule that uses plans.
pub(super) fn plan_warning(change: &TemporaryChange, rules: &RuleSet) -> Option<&'static str> {
    if !matches!(change.action, ChangeAction::Limit(_)) {
        return None;
    }
    match &change.target {
        ChangeTarget::Rule(name) => {
            let found = named(rules, &[(change.domain.as_str(), name.as_str())]).pop()?;
            found.iter().any(|rule| rule.limit_from.is_some()).then_some(OF_RULE)
        }
        ChangeTarget::Descriptor(pairs) => match rules.find(&change.domain, &entries(pairs)) {
            Found::Rule(rule) => rule.limit_from.is_some().then_some(OF_DESCRIPTOR),
            Found::NoRule | Found::UnknownDomain => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::TierNumbers;
    use crate::rules::{Options, SourceFile, compile};
    use crate::time::Micros;

    const RULES: &str = "
domain: d
descriptors:
  - key: api_key
    rate_limit:
      name: calls
      unit: minute
      requests_per_unit: 10
      limit_from: { customer: api_key, default: free }
  - key: user
    rate_limit: { name: per-user, unit: minute, requests_per_unit: 10 }
";

    #[test]
    fn only_limits_of_rules_with_plans_cause_it() {
        let file = SourceFile { name: "rules.yaml".into(), text: RULES.to_owned() };
        let (rules, _) = compile(&[file], &Options::default()).expect("valid");
        let limit = ChangeAction::Limit(vec![TierNumbers { requests: 5, burst: None }]);
        let rule = |name: &str| ChangeTarget::Rule(name.to_owned());
        let descriptor =
            |key: &str| ChangeTarget::Descriptor(vec![(key.to_owned(), "acme".to_owned())]);
        for (target, action, warning) in [
            (rule("calls"), limit.clone(), Some(OF_RULE)),
            (rule("api_key"), limit.clone(), Some(OF_RULE)),
            (descriptor("api_key"), limit.clone(), Some(OF_DESCRIPTOR)),
            (rule("per-user"), limit.clone(), None),
            (descriptor("user"), limit.clone(), None),
            (descriptor("other"), limit, None),
            (rule("calls"), ChangeAction::Block, None),
            (descriptor("api_key"), ChangeAction::Bypass, None),
        ] {
            let change = TemporaryChange {
                id: "1".to_owned(),
                domain: "d".to_owned(),
                target,
                action,
                until: Micros(2),
                made_at: Micros(1),
                reason: String::new(),
                by: "ann".to_owned(),
            };
            assert_eq!(plan_warning(&change, &rules), warning, "{change:?}");
        }
    }
}
