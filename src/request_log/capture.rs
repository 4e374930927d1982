//! A capture: for a time, requests get lines that the settings and the rules do not ask for.

use serde::Deserialize;

use crate::duration;
use crate::escape::excerpt;
use crate::limit::RequestLines;
use crate::rules::{Rule, RuleSet, ShownRule};
use crate::sampling::SampledShare;
use crate::time::Micros;

/// The most captures at a time. Each is compared with every decision.
pub const CAPTURES_MAX: usize = 16;

/// The longest capture. What holds longer belongs into the settings or the rules.
const LENGTH_MAX: Micros = Micros::from_secs(3_600);

/// Longest part of a request in an error, and longest name of a caller, in characters.
const SHOWN_CHARS_MAX: usize = 200;

/// Requests that get lines until an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct LogCapture {
    /// The requests: denied ones, or all.
    pub requests: RequestLines,
    /// The domain of the requests; `None` for all domains.
    pub domain: Option<String>,
    /// The rule that decides one of their descriptors; `None` for all rules.
    pub rule: Option<CapturedRule>,
    /// The share of the requests, over 0 and at most 1.
    pub sample: f64,
    /// When it began.
    pub began: Micros,
    /// From this instant on, it has no effect.
    pub until: Micros,
    /// Who began it: a name that the caller gave, or an address. At most 200 characters.
    pub by: String,
}

/// The rule of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedRule {
    /// The name of the rule when the capture began.
    pub name: String,
    /// The selector, by which the rule is found again after a reload.
    pub selector: String,
    /// The name in the audit log.
    pub(super) shown: ShownRule,
}

/// Why a capture cannot begin. Each text has the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureProblem {
    /// The request is wrong.
    Invalid(String),
    /// The domain or the rule does not exist.
    Unknown(String),
    /// The request does not fit what exists.
    Conflict(String),
}

/// A capture that a caller asks for: the body of `PUT /log`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    requests: RequestLines,
    domain: Option<String>,
    rule: Option<String>,
    sample: Option<f64>,
    #[serde(rename = "for")]
    length: String,
}

impl LogCapture {
    /// Whether it has an effect at `now`.
    pub fn is_active(&self, now: Micros) -> bool {
        now < self.until
    }

    /// Whether `other` is about the same domain and rule.
    pub(super) fn has_target_of(&self, other: &LogCapture) -> bool {
        let selector = |one: &LogCapture| one.rule.as_ref().map(|rule| rule.selector.clone());
        self.domain == other.domain && selector(self) == selector(other)
    }

    /// Whether it is about a descriptor of `domain` that `rule` decided.
    pub(super) fn is_about(&self, domain: &str, rule: Option<&Rule>) -> bool {
        if self.domain.as_deref().is_some_and(|own| own != domain) {
            return false;
        }
        match &self.rule {
            None => true,
            Some(own) => rule.is_some_and(|rule| rule.selector() == own.selector),
        }
    }

    /// The share of the requests that get a line.
    pub(super) fn share(&self) -> SampledShare {
        SampledShare::new(self.sample)
    }
}

impl CaptureRequest {
    /// The request in a body.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write.
    pub fn from_json(body: &[u8]) -> Result<CaptureRequest, CaptureProblem> {
        serde_json::from_slice(body).map_err(|error| {
            CaptureProblem::Invalid(format!(
                "write {{\"requests\": \"denied\", \"for\": \"10m\"}}, with \"all\" for all \
                 requests, and with \"domain\", \"rule\" and \"sample\" if you like: {error}"
            ))
        })
    }

    /// The capture that `by` begins at `now`. Its length is rounded up to whole seconds.
    ///
    /// # Errors
    ///
    /// The reason why it would have no effect, or is over a bound.
    pub(super) fn into_capture(
        self,
        rules: &RuleSet,
        by: &str,
        now: Micros,
    ) -> Result<LogCapture, CaptureProblem> {
        if self.requests == RequestLines::Off {
            return Err(CaptureProblem::Invalid(
                "requests: `off` begins no capture; write `denied` or `all`, or DELETE /log to end \
                 captures"
                    .to_owned(),
            ));
        }
        let length = length(&self.length)?;
        let sample = self.sample.unwrap_or(1.0);
        if !(sample > 0.0 && sample <= 1.0) {
            return Err(CaptureProblem::Invalid(format!(
                "sample: {sample} is no share of requests; write a number over 0 and at most 1"
            )));
        }
        if let Some(domain) = &self.domain
            && !rules.has_domain(domain)
        {
            return Err(CaptureProblem::Unknown(rules.unknown_domain(domain)));
        }
        let rule = match (&self.domain, &self.rule) {
            (_, None) => None,
            (None, Some(_)) => {
                return Err(CaptureProblem::Invalid(
                    "`rule` needs `domain`; write the domain of the rule too".to_owned(),
                ));
            }
            (Some(domain), Some(name)) => Some(captured_rule(domain, name, rules)?),
        };
        let end = now.saturating_add(length).ceil_secs();
        Ok(LogCapture {
            requests: self.requests,
            domain: self.domain,
            rule,
            sample,
            began: now,
            until: Micros::from_secs(end),
            by: by.chars().take(SHOWN_CHARS_MAX).collect(),
        })
    }
}

/// The length of a capture in `text`.
fn length(text: &str) -> Result<Micros, CaptureProblem> {
    let shown = excerpt(text, SHOWN_CHARS_MAX);
    let nanos = duration::parse(text, duration::Style::Whole).map_err(|error| {
        CaptureProblem::Invalid(format!(
            "for: `{shown}` is no duration: {error}; write one such as 10m"
        ))
    })?;
    let length = Micros(u64::try_from(nanos / 1_000).unwrap_or(u64::MAX));
    if length > LENGTH_MAX {
        return Err(CaptureProblem::Invalid(format!(
            "for: `{shown}` is too long; write at most 1h, or set log.requests"
        )));
    }
    Ok(length)
}

/// The rule of `domain` with this name or selector.
fn captured_rule(
    domain: &str,
    name: &str,
    rules: &RuleSet,
) -> Result<CapturedRule, CaptureProblem> {
    let Some(rule) = rules.rule_named(domain, name) else {
        return Err(CaptureProblem::Unknown(rules.unknown_rule(domain, name)));
    };
    let (name, selector) = (rule.display_name.to_string(), rule.selector());
    Ok(CapturedRule { name, selector, shown: ShownRule::of(rule) })
}
