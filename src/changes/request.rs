//! A request for a temporary change: the body of `PATCH /changes`, and its check against the rules.

use serde::Deserialize;

use super::active::problem_of;
use super::change::{ChangeAction, ChangeTarget, TemporaryChange, entries, instant_text};
use super::problem::ChangeProblem;
use super::rule_names::named;
use super::{CHANGE_BYTES_MAX, CHANGE_LENGTH_MAX};
use crate::descriptor::{
    Descriptor, Entry, ParsedDescriptor, Request, RequestBounds, TraceContext,
};
use crate::duration;
use crate::escape::excerpt;
use crate::limit::TierNumbers;
use crate::rules::{Found, RuleSet};
use crate::time::Micros;

/// Longest reason, in characters.
const REASON_CHARS_MAX: usize = 500;

/// Longest part of a request in an error, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// A change that a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    domain: String,
    target: ChangeTarget,
    action: ChangeAction,
    end: RequestedEnd,
    reason: String,
}

/// The end of a requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestedEnd {
    /// An instant.
    At(Micros),
    /// This long after the change is made.
    After(Micros),
}

/// The body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeBody {
    domain: String,
    rule: Option<String>,
    descriptor: Option<BodyDescriptor>,
    limit: Option<BodyLimit>,
    block: Option<bool>,
    bypass: Option<bool>,
    until: Option<String>,
    #[serde(rename = "for")]
    length: Option<String>,
    reason: Option<String>,
}

/// A descriptor, either as text or in the form of a request to `/json`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "write `descriptor` as \"key=value,key=value\"")]
enum BodyDescriptor {
    Text(String),
    Entries { entries: Vec<BodyEntry> },
}

#[derive(Deserialize)]
struct BodyEntry {
    key: String,
    #[serde(default)]
    value: String,
}

/// The numbers of the only tier, or of each tier.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "write `limit` as a whole number, as {\"requests\": N, \"burst\": N}, or as a list \
                 with one of these per tier"
)]
enum BodyLimit {
    // First, because serde also reads a struct from a list.
    PerTier(Vec<BodyNumbers>),
    One(BodyNumbers),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BodyNumbers {
    Requests(u64),
    Tier(BodyTier),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BodyTier {
    requests: u64,
    burst: Option<u64>,
}

impl From<BodyNumbers> for TierNumbers {
    fn from(written: BodyNumbers) -> TierNumbers {
        match written {
            BodyNumbers::Requests(requests) => TierNumbers { requests, burst: None },
            BodyNumbers::Tier(BodyTier { requests, burst }) => TierNumbers { requests, burst },
        }
    }
}

impl ChangeRequest {
    /// The request in a body.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write.
    pub fn from_json(body: &[u8]) -> Result<ChangeRequest, String> {
        let body: ChangeBody = serde_json::from_slice(body).map_err(|error| {
            format!(
                "write {{\"domain\": \"D\", \"rule\": \"NAME\", \"limit\": N, \"for\": \"1h\"}}, \
                 with \"descriptor\": \"key=value\" instead of \"rule\", and \"block\": true or \
                 \"bypass\": true instead of \"limit\": {error}"
            )
        })?;
        let target = target(body.rule, body.descriptor)?;
        let action = action(body.limit, body.block, body.bypass)?;
        let end = end(body.until.as_deref(), body.length.as_deref())?;
        let reason = body.reason.unwrap_or_default();
        let length = reason.chars().count();
        if length > REASON_CHARS_MAX {
            return Err(format!(
                "reason: {length} characters, more than {REASON_CHARS_MAX}; shorten it"
            ));
        }
        Ok(ChangeRequest { domain: body.domain, target, action, end, reason })
    }

    /// The change with this id that `by` makes at `now`. It has the selector of its rule, which stays the
    /// same if the rule gets another name.
    ///
    /// # Errors
    ///
    /// The reason why it would have no effect, or is over a bound.
    pub(super) fn into_change(
        self,
        id: String,
        by: String,
        rules: &RuleSet,
        bounds: &RequestBounds,
        now: Micros,
    ) -> Result<TemporaryChange, ChangeProblem> {
        let until = self.end.after(now)?;
        let domain = self.domain;
        if !rules.has_domain(&domain) {
            return Err(ChangeProblem::Unknown(rules.unknown_domain(&domain)));
        }
        let target = match self.target {
            ChangeTarget::Rule(name) => rule_target(&domain, &name, &self.action, rules)?,
            ChangeTarget::Descriptor(pairs) => {
                check_descriptor(&domain, &entries(&pairs), &self.action, rules, bounds)?;
                ChangeTarget::Descriptor(pairs)
            }
        };
        let (action, reason) = (self.action, self.reason);
        let change =
            TemporaryChange { id, domain, target, action, until, made_at: now, reason, by };
        let bytes = change.to_json().len();
        if bytes > CHANGE_BYTES_MAX {
            return Err(ChangeProblem::Invalid(format!(
                "the change has {bytes} bytes, more than {CHANGE_BYTES_MAX}; shorten the \
                 descriptor or the reason"
            )));
        }
        Ok(change)
    }
}

fn target(
    rule: Option<String>,
    descriptor: Option<BodyDescriptor>,
) -> Result<ChangeTarget, String> {
    let pairs = match (rule, descriptor) {
        (Some(rule), None) => return Ok(ChangeTarget::Rule(rule)),
        (None, Some(BodyDescriptor::Text(text))) => text.parse::<ParsedDescriptor>()?.0,
        (None, Some(BodyDescriptor::Entries { entries })) => {
            entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
        }
        _ => return Err("write either `rule` or `descriptor`".to_owned()),
    };
    if pairs.is_empty() {
        return Err("`descriptor` has no entries; write at least one".to_owned());
    }
    Ok(ChangeTarget::Descriptor(pairs))
}

fn action(
    limit: Option<BodyLimit>,
    block: Option<bool>,
    bypass: Option<bool>,
) -> Result<ChangeAction, String> {
    match (limit, block, bypass) {
        (Some(BodyLimit::One(numbers)), None, None) => {
            Ok(ChangeAction::Limit(vec![numbers.into()]))
        }
        (Some(BodyLimit::PerTier(numbers)), None, None) => {
            Ok(ChangeAction::Limit(numbers.into_iter().map(TierNumbers::from).collect()))
        }
        (None, Some(true), None) => Ok(ChangeAction::Block),
        (None, None, Some(true)) => Ok(ChangeAction::Bypass),
        _ => Err("write one of `limit`, `block: true` and `bypass: true`".to_owned()),
    }
}

fn end(until: Option<&str>, length: Option<&str>) -> Result<RequestedEnd, String> {
    match (until, length) {
        (Some(text), None) => {
            let at: Option<prost_types::Timestamp> = text.parse().ok();
            let at = at.and_then(|at| {
                let seconds = u64::try_from(at.seconds).ok()?.checked_mul(1_000_000)?;
                Some(Micros(seconds.checked_add(u64::try_from(at.nanos).ok()? / 1_000)?))
            });
            at.map(RequestedEnd::At).ok_or_else(|| {
                let text = excerpt(text, SHOWN_CHARS_MAX);
                format!(
                    "until: `{text}` is no instant of RFC 3339; write one such as \
                     2026-11-23T18:00:00Z"
                )
            })
        }
        (None, Some(text)) => {
            let nanos = duration::parse(text, duration::Style::Whole).map_err(|error| {
                let text = excerpt(text, SHOWN_CHARS_MAX);
                format!("for: `{text}` is no duration: {error}; write one such as 2h30m")
            })?;
            let micros = u64::try_from(nanos / 1_000).unwrap_or(u64::MAX);
            Ok(RequestedEnd::After(Micros(micros)))
        }
        _ => Err("write either `until` with an instant, or `for` with a duration".to_owned()),
    }
}

impl RequestedEnd {
    /// The end of a change that is made at `now`.
    fn after(self, now: Micros) -> Result<Micros, ChangeProblem> {
        let latest = now.saturating_add(CHANGE_LENGTH_MAX);
        let days = CHANGE_LENGTH_MAX.0 / Micros::from_secs(86_400).0;
        let fix = format!("write at most {days}d, or change the rules");
        match self {
            RequestedEnd::At(at) if at <= now => Err(ChangeProblem::Invalid(format!(
                "until: {} is over; write an instant after {}",
                instant_text(at),
                instant_text(now)
            ))),
            RequestedEnd::At(at) if at > latest => Err(ChangeProblem::Invalid(format!(
                "until: {} is too far ahead; {fix}",
                instant_text(at)
            ))),
            RequestedEnd::At(at) => Ok(at),
            RequestedEnd::After(length) if length > CHANGE_LENGTH_MAX => {
                Err(ChangeProblem::Invalid(format!("for: it is too long; {fix}")))
            }
            // A whole second is easier to read.
            RequestedEnd::After(length) => {
                Ok(Micros::from_secs(now.saturating_add(length).ceil_secs()))
            }
        }
    }
}

/// The target of a change of the rule `name`.
fn rule_target(
    domain: &str,
    name: &str,
    action: &ChangeAction,
    rules: &RuleSet,
) -> Result<ChangeTarget, ChangeProblem> {
    let found = named(rules, &[(domain, name)]).pop().unwrap_or_default();
    let rule = match &found[..] {
        [rule] => *rule,
        [] => return Err(ChangeProblem::Unknown(rules.unknown_rule(domain, name))),
        several => {
            let shown = excerpt(name, SHOWN_CHARS_MAX);
            let selectors: Vec<String> = several
                .iter()
                .take(5)
                .map(|rule| format!("`{}`", excerpt(&rule.selector(), SHOWN_CHARS_MAX)))
                .collect();
            let selectors = selectors.join(", ");
            return Err(ChangeProblem::Conflict(format!(
                "rule: `{shown}` is the name of several rules; write the selector of one: \
                 {selectors}"
            )));
        }
    };
    match problem_of(action, rule) {
        None => Ok(ChangeTarget::Rule(rule.selector())),
        Some(problem) => Err(ChangeProblem::Invalid(format!("limit: {problem}"))),
    }
}

/// Checks a descriptor against the bounds of requests, and a limit against the rule that it matches.
fn check_descriptor(
    domain: &str,
    entries: &[Entry<'_>],
    action: &ChangeAction,
    rules: &RuleSet,
    bounds: &RequestBounds,
) -> Result<(), ChangeProblem> {
    let descriptor =
        Descriptor { entries, limit: None, hits_addend: None, is_negative_hits: false };
    let request = Request {
        domain,
        descriptors: &[descriptor],
        hits_addend: 0,
        timeout: None,
        trace: TraceContext::default(),
        must_decide: None,
    };
    request.validate(bounds).map_err(|error| ChangeProblem::Invalid(error.to_string()))?;
    match rules.find(domain, entries) {
        Found::Rule(rule) => match problem_of(action, rule) {
            None => Ok(()),
            Some(problem) => Err(ChangeProblem::Invalid(format!("limit: {problem}"))),
        },
        Found::NoRule | Found::UnknownDomain if matches!(action, ChangeAction::Limit(_)) => {
            Err(ChangeProblem::Unknown(
                "descriptor: no rule limits it, so it has no limit to change; POST it to /explain \
                 to see why, or block it"
                    .to_owned(),
            ))
        }
        Found::NoRule | Found::UnknownDomain => Ok(()),
    }
}
