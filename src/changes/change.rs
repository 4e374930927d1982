//! A temporary change: what it changes, until when, and who made it.

use serde::{Deserialize, Serialize};

use super::CHANGE_BYTES_MAX;
use crate::descriptor::Entry;
use crate::limit::{TIERS_MAX, TierNumbers};
use crate::rules::descriptor_selector;
use crate::time::Micros;

/// A change of how requests are decided, until an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporaryChange {
    /// The unique id. A change that replaces another one has another id.
    pub id: String,
    /// The domain.
    pub domain: String,
    /// What is changed.
    pub target: ChangeTarget,
    /// How it is changed.
    pub action: ChangeAction,
    /// From this instant on, the change has no effect. By the clock of the store that has the change.
    pub until: Micros,
    /// When it was made, by the same clock.
    pub made_at: Micros,
    /// Why it was made; may be empty.
    pub reason: String,
    /// Who made it: a name that the caller gave, or an address.
    pub by: String,
}

/// What a change applies to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChangeTarget {
    /// All descriptors of the rule with this selector or name, or of all rules with this `name`.
    Rule(String),
    /// Descriptors with exactly these entries, in this order. They need no rule.
    Descriptor(Vec<(String, String)>),
}

/// The effect of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeAction {
    /// These numbers replace those of the rule, one item per tier.
    Limit(Vec<TierNumbers>),
    /// All hits are denied.
    Block,
    /// All hits pass, and none is counted.
    Bypass,
}

impl ChangeAction {
    /// The names of all actions.
    pub const NAMES: [&'static str; 3] = ["limit", "block", "bypass"];

    /// The name in JSON, metrics and the log.
    pub const fn name(&self) -> &'static str {
        match self {
            ChangeAction::Limit(_) => ChangeAction::NAMES[0],
            ChangeAction::Block => ChangeAction::NAMES[1],
            ChangeAction::Bypass => ChangeAction::NAMES[2],
        }
    }
}

impl ChangeTarget {
    /// The target as a selector.
    pub fn selector(&self) -> String {
        match self {
            ChangeTarget::Rule(name) => name.clone(),
            ChangeTarget::Descriptor(pairs) => descriptor_selector(&entries(pairs)),
        }
    }
}

/// The entries of a descriptor.
pub(super) fn entries(pairs: &[(String, String)]) -> Vec<Entry<'_>> {
    pairs.iter().map(|(key, value)| Entry { key, value }).collect()
}

/// A change as it is stored, without its id.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredChange {
    domain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptor: Option<Vec<(String, String)>>,
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Vec<StoredNumbers>>,
    /// Microseconds since the epoch.
    until: u64,
    /// Microseconds since the epoch.
    made_at: u64,
    reason: String,
    by: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredNumbers {
    requests: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
}

impl TemporaryChange {
    /// The form in which the change is stored. It does not contain the id.
    pub fn to_json(&self) -> String {
        let (rule, descriptor) = match &self.target {
            ChangeTarget::Rule(name) => (Some(name.clone()), None),
            ChangeTarget::Descriptor(entries) => (None, Some(entries.clone())),
        };
        let numbers =
            |one: &TierNumbers| StoredNumbers { requests: one.requests, burst: one.burst };
        let limit = match &self.action {
            ChangeAction::Limit(all) => Some(all.iter().map(numbers).collect()),
            ChangeAction::Block | ChangeAction::Bypass => None,
        };
        let stored = StoredChange {
            domain: self.domain.clone(),
            rule,
            descriptor,
            action: self.action.name().to_owned(),
            limit,
            until: self.until.0,
            made_at: self.made_at.0,
            reason: self.reason.clone(),
            by: self.by.clone(),
        };
        serde_json::to_string(&stored).expect("texts and numbers have a JSON form")
    }

    /// The change that is stored as `json` under `id`.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes. A field that this version does not know is an error too: a change
    /// that is applied in part could do harm.
    pub fn from_json(id: &str, json: &[u8]) -> Result<TemporaryChange, String> {
        if json.len() > CHANGE_BYTES_MAX {
            return Err(format!("{} bytes, more than {CHANGE_BYTES_MAX}", json.len()));
        }
        let stored: StoredChange =
            serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let target = match (stored.rule, stored.descriptor) {
            (Some(rule), None) => ChangeTarget::Rule(rule),
            (None, Some(entries)) if !entries.is_empty() => ChangeTarget::Descriptor(entries),
            _ => return Err("it needs either `rule` or `descriptor`".to_owned()),
        };
        let numbers = |one: StoredNumbers| TierNumbers { requests: one.requests, burst: one.burst };
        let action = match (stored.action.as_str(), stored.limit) {
            ("limit", Some(limit)) if (1..=TIERS_MAX).contains(&limit.len()) => {
                ChangeAction::Limit(limit.into_iter().map(numbers).collect())
            }
            ("block", None) => ChangeAction::Block,
            ("bypass", None) => ChangeAction::Bypass,
            _ => return Err("`action` is unknown, or does not fit `limit`".to_owned()),
        };
        Ok(TemporaryChange {
            id: id.to_owned(),
            domain: stored.domain,
            target,
            action,
            until: Micros(stored.until),
            made_at: Micros(stored.made_at),
            reason: stored.reason,
            by: stored.by,
        })
    }

    /// Whether this change has an effect at `now`, by the clock of the store.
    pub fn is_active(&self, now: Micros) -> bool {
        now < self.until
    }

    /// What the change replaces: of several changes with equal places, the last one has an effect.
    pub fn place(&self) -> (&str, &ChangeTarget, &'static str) {
        (&self.domain, &self.target, self.action.name())
    }

    /// The order in which changes were made; equal on all instances.
    pub(super) fn order(&self) -> (Micros, &str) {
        (self.made_at, &self.id)
    }
}

/// An instant in the format of RFC 3339, in UTC, with all its digits.
pub fn instant_text(at: Micros) -> String {
    let seconds = i64::try_from(at.0 / 1_000_000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(at.0 % 1_000_000 * 1_000).unwrap_or_default();
    prost_types::Timestamp { seconds, nanos }.to_string()
}
