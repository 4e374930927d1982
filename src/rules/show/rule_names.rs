//! Finds and explains rules that are named instead of matched: by the rule name, by the selector, or by a
//! `name` of several rules.

use super::explain::{Explanation, LookupOutcome};
use crate::descriptor::ParsedDescriptor;
use crate::rules::RuleSet;
use crate::rules::excerpt::shorten;
use crate::rules::lookup::rule::Rule;

/// Most rules that are found by a `name` of several rules.
const SHARED_MAX: usize = 16;

impl Explanation {
    /// Of a descriptor that is not looked up, with the reason.
    pub fn not_looked_up(domain: &str, why: &str) -> Explanation {
        let outcome = LookupOutcome::NoRule { why: why.to_owned(), near_misses: Vec::new() };
        Explanation { domain: shorten(domain), lease: None, levels: Vec::new(), outcome }
    }
}

impl RuleSet {
    /// Explains a descriptor or a rule, each as text. A text that is both, such as `path=/login`, means
    /// the descriptor.
    ///
    /// # Errors
    ///
    /// The text is neither a descriptor nor the name or the selector of a rule.
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

    /// Explains the rule of `domain` with this name or selector. `None` if there is none. Of several rules
    /// with one `name`, it explains the first and lists the others.
    pub fn explain_rule(&self, domain: &str, name: &str) -> Option<Explanation> {
        let named = self.rules_named(domain, name);
        let (first, others) = named.split_first()?;
        let mut summary = self.rule_summary(first, None);
        summary.options.extend(other_rules(others));
        let outcome = LookupOutcome::Rule(summary);
        Some(Explanation { domain: shorten(domain), lease: None, levels: Vec::new(), outcome })
    }

    /// The rule of `domain` with this rule name or selector, or else the first with this `name`.
    pub fn rule_named(&self, domain: &str, name: &str) -> Option<&Rule> {
        self.rules_named(domain, name).first().copied()
    }

    /// The rule of `domain` with this rule name or selector, or else all rules with this `name`, at most 16.
    /// In file order. Takes at most two passes over the rules.
    pub fn rules_named(&self, domain: &str, name: &str) -> Vec<&Rule> {
        let mut of_domain = self.rules.iter().filter(|rule| *rule.domain == *domain);
        if let Some(rule) = of_domain.find(|rule| rule.is_called(name)) {
            return vec![rule];
        }
        let has_name = |rule: &&Rule| *rule.domain == *domain && rule.name.as_deref() == Some(name);
        self.rules.iter().filter(has_name).take(SHARED_MAX).collect()
    }
}

impl Rule {
    /// Whether `text` is the rule name or the selector. At most one rule of a domain is called so.
    pub fn is_called(&self, text: &str) -> bool {
        *self.display_name == *text || self.other_selector().is_some_and(|other| other == *text)
    }
}

/// The other rules of one name, in words.
fn other_rules(rules: &[&Rule]) -> Option<String> {
    let places: Vec<String> = rules.iter().map(|rule| rule.location.to_string()).collect();
    (!places.is_empty()).then(|| format!("the name is also that of {}", places.join(", ")))
}
