//! Explains a rule that is named instead of matched: by its selector, which metrics and the log have,
//! or by its name, which responses have.

use super::explain::{Explanation, LookupOutcome};
use crate::descriptor::ParsedDescriptor;
use crate::rules::RuleSet;
use crate::rules::excerpt::shorten;
use crate::rules::lookup::rule::Rule;

impl RuleSet {
    /// Explains a descriptor or a rule, each as text. A text that is both, such as `path=/login`, means
    /// the descriptor.
    ///
    /// # Errors
    ///
    /// The text is neither a descriptor nor one of the names of a rule.
    pub fn explain_text(&self, domain: &str, text: &str) -> Result<Explanation, String> {
        let parsed = text.parse::<ParsedDescriptor>();
        let explained = parsed.map(|descriptor| self.explain(domain, &descriptor.entries()));
        if let Ok(Explanation { outcome: LookupOutcome::Rule(_), .. }) = explained {
            return explained;
        }
        match self.explain_rule(domain, text) {
            Some(explanation) => Ok(explanation),
            None => explained.map_err(|error| format!("{error}, or the name of a rule")),
        }
    }

    /// Explains the rule of `domain` with this selector, name or label. `None` if there is none. Of
    /// several rules with one name, it explains the first and lists the others.
    pub fn explain_rule(&self, domain: &str, name: &str) -> Option<Explanation> {
        let rule = self.rule_named(domain, name)?;
        let mut summary = self.rule_summary(rule, None);
        if rule.selector() != name {
            let named = self.rules_labelled(domain, name);
            summary.options.extend(others(named.filter(|other| other.index != rule.index)));
        }
        let outcome = LookupOutcome::Rule(summary);
        Some(Explanation { domain: shorten(domain), lease: None, levels: Vec::new(), outcome })
    }

    /// The rule of `domain` with this selector, name or label; the first of several with one name. `None`
    /// if there is none.
    pub fn rule_named(&self, domain: &str, name: &str) -> Option<&Rule> {
        let mut of_domain = self.rules.iter().filter(|rule| *rule.domain == *domain);
        let selected = of_domain.find(|rule| rule.selector() == name);
        selected.or_else(|| self.rules_labelled(domain, name).next())
    }

    /// The rules of `domain` with this name, or with these keys joined with dots and no name.
    fn rules_labelled<'r>(&'r self, domain: &str, name: &str) -> impl Iterator<Item = &'r Rule> {
        let is_it = move |rule: &&Rule| *rule.domain == *domain && *rule.display_name == *name;
        self.rules.iter().filter(is_it)
    }
}

/// The other rules of one name, in words.
fn others<'r>(rules: impl Iterator<Item = &'r Rule>) -> Option<String> {
    let places: Vec<String> = rules.map(|rule| rule.location.to_string()).collect();
    (!places.is_empty()).then(|| format!("the name is also that of {}", places.join(", ")))
}
