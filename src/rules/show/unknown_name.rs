//! Writes the errors about domains and rules that do not exist, with the name that was probably meant.

use crate::escape::excerpt;
use crate::rules::RuleSet;
use crate::spelling::nearest;

/// Longest name in an error, in characters.
const NAME_CHARS_MAX: usize = 80;

/// The most names of rules that are compared with a misspelt one.
const COMPARED_MAX: usize = 10_000;

impl RuleSet {
    /// The error of a request that names `domain`, which does not exist.
    pub fn unknown_domain(&self, domain: &str) -> String {
        let hint = match nearest(domain, self.domains()) {
            Some(meant) => did_you_mean(meant),
            None => "GET /rules lists the domains".to_owned(),
        };
        let shown = excerpt(domain, NAME_CHARS_MAX);
        format!("domain: neither a file nor xDS defines `{shown}`; {hint}")
    }

    /// The error of a request that names a rule of `domain` which does not exist. Only the first 10 000
    /// rules of the domain are suggested.
    pub fn unknown_rule(&self, domain: &str, name: &str) -> String {
        let of_domain = self.rules.iter().filter(|rule| *rule.domain == *domain);
        let names = of_domain.take(COMPARED_MAX).map(|rule| &*rule.display_name);
        let hint = match nearest(name, names) {
            Some(meant) => did_you_mean(meant),
            None => "write its name or its selector, as `weir explain` shows them".to_owned(),
        };
        let shown = excerpt(name, NAME_CHARS_MAX);
        format!("rule: no rule of this domain has the name or selector `{shown}`; {hint}")
    }
}

fn did_you_mean(name: &str) -> String {
    format!("did you mean `{}`?", excerpt(name, NAME_CHARS_MAX))
}
