//! `limit_from`: the plan from which a rule takes the numbers of its limit.

use std::fmt;
use std::sync::Arc;

use crate::descriptor::Entry;
use crate::key::{CounterKey, RuleId};
use crate::limit::Limit;
use crate::rules::excerpt::shorten;

/// What the value of an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanEntry {
    /// A customer, whom a source assigns to a plan.
    Customer,
    /// A plan.
    Plan,
}

impl PlanEntry {
    /// The field in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            PlanEntry::Customer => "customer",
            PlanEntry::Plan => "plan",
        }
    }
}

/// Where a rule finds its plan, and which numbers of the plan it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitFrom {
    /// What the value of the entry names.
    pub names: PlanEntry,
    /// The key of the entry.
    pub key: Arc<str>,
    /// The position of the entry in a descriptor that matches the rule, from 0.
    level: usize,
    /// The name of the limit in a plan.
    pub limit: Arc<str>,
    /// The plan of a customer without one, and of an unknown plan. `None`: the rule's own numbers
    /// decide.
    pub default: Option<Arc<str>>,
    /// A hash of everything on which the numbers depend besides the plan: the name of the limit, the
    /// default, the algorithm, the windows and the bursts. Rules with the same hash use the same numbers.
    pub use_id: u64,
}

impl LimitFrom {
    /// The numbers of the limit called `name` for a rule with this `limit`. The entry at `level` has
    /// the key `key`.
    pub(in crate::rules) fn new(
        (names, key, level): (PlanEntry, Arc<str>, usize),
        name: Arc<str>,
        default: Option<Arc<str>>,
        limit: &Limit,
    ) -> LimitFrom {
        let mut id = RuleId::builder();
        id.text("limit_from").text(&name).number(u64::from(default.is_some()));
        id.text(default.as_deref().unwrap_or_default());
        id.text(limit.algorithm.name()).number(limit.tiers.len() as u64);
        for tier in &limit.tiers {
            id.number(tier.window.0);
            // A burst that equals the requests follows those of the plan.
            let follows = tier.burst == tier.requests || !limit.algorithm.has_burst();
            id.number(if follows { 0 } else { tier.burst });
        }
        let CounterKey([use_id, _]) = id.finish();
        LimitFrom { names, key, level, limit: name, default, use_id }
    }

    /// The value of the entry, in a descriptor that matches the rule.
    pub fn value<'a>(&self, entries: &[Entry<'a>]) -> &'a str {
        entries.get(self.level).map_or("", |entry| entry.value)
    }

    /// The map as rule files have it.
    pub(in crate::rules) fn written(&self) -> String {
        let default = self.default.as_deref().map(shorten);
        let default = default.map_or_else(String::new, |plan| format!(", default: {plan}"));
        let (names, key, limit) = (self.names.name(), shorten(&self.key), shorten(&self.limit));
        format!("{{{names}: {key}, limit: {limit}{default}}}")
    }
}

impl fmt::Display for LimitFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, limit) = (shorten(&self.key), shorten(&self.limit));
        match self.names {
            PlanEntry::Customer => write!(f, "numbers from the plan of the customer `{key}`")?,
            PlanEntry::Plan => write!(f, "numbers from the plan in `{key}`")?,
        }
        write!(f, ": limit `{limit}`")?;
        match &self.default {
            Some(plan) => write!(f, ", default plan `{}`", shorten(plan)),
            None => f.write_str(", without a plan those above"),
        }
    }
}
