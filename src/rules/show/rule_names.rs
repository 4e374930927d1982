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
        let of_domain = || self.rules.iter().filter(move |rule| *rule.domain == *domain);
        let named = || of_domain().filter(move |rule| *rule.display_name == *name);
        let selected = of_domain().find(|rule| rule.selector() == name);
        let rule = selected.or_else(|| named().next())?;
        let mut summary = self.rule_summary(rule, None);
        if selected.is_none() {
            summary.options.extend(others(named().skip(1)));
        }
        let outcome = LookupOutcome::Rule(summary);
        Some(Explanation { domain: shorten(domain), lease: None, levels: Vec::new(), outcome })
    }
}

/// The other rules of one name, in words.
fn others<'r>(rules: impl Iterator<Item = &'r Rule>) -> Option<String> {
    let places: Vec<String> = rules.map(|rule| rule.location.to_string()).collect();
    (!places.is_empty()).then(|| format!("the name is also that of {}", places.join(", ")))
}
