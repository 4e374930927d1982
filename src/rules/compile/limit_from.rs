//! Turns the map under `limit_from` into the plan of a rule.

use std::sync::Arc;

use super::Compiler;
use crate::rules::excerpt::shorten;
use crate::rules::file::model::RawRateLimit;
use crate::rules::file::problem::{Location, Position};
use crate::rules::file::raw_limit_from::RawLimitFrom;
use crate::rules::file::reader::Text;
use crate::rules::lookup::limit_from::{LimitFrom, PlanEntry};
use crate::rules::lookup::matcher::Matcher;
use crate::rules::lookup::rule::RuleLimit;
use crate::spelling::nearest;

impl Compiler<'_> {
    /// The plan of the rule at the current path, which has this `limit`. `None` without `limit_from`
    /// and after a reported error.
    pub(super) fn limit_from(
        &mut self,
        raw: &RawRateLimit,
        limit: &RuleLimit,
        location: &Location,
    ) -> Option<Box<LimitFrom>> {
        let from = raw.limit_from.as_ref()?;
        let mut reader = LimitFromReader { compiler: self, location };
        let entry = reader.entry(from);
        let name = reader.limit_name(from, raw.name.as_ref());
        let default = reader.default(from)?;
        match limit {
            // `unlimited` beside it is reported with the other fields of the limit.
            RuleLimit::Unlimited => None,
            RuleLimit::Limit(limit) => {
                Some(Box::new(LimitFrom::new(entry?, name?, default, limit)))
            }
        }
    }
}

/// Reads one `limit_from`.
struct LimitFromReader<'a, 'c> {
    compiler: &'a mut Compiler<'c>,
    location: &'a Location,
}

impl LimitFromReader<'_, '_> {
    /// What the entry names, its key and its position in the path.
    fn entry(&mut self, from: &RawLimitFrom) -> Option<(PlanEntry, Arc<str>, usize)> {
        let (names, field) = match (&from.customer, &from.plan) {
            (Some(customer), None) => (PlanEntry::Customer, customer),
            (None, Some(plan)) => (PlanEntry::Plan, plan),
            (Some(_), Some(plan)) => {
                let what = "`limit_from` has both `customer` and `plan`";
                self.error(plan.at, what, "keep the one that the entry's value names");
                return None;
            }
            (None, None) => {
                let hint = "write `customer: KEY` if the value of the entry KEY is a customer, or \
                            `plan: KEY` if it is a plan";
                self.error(from.at, "`limit_from` has neither `customer` nor `plan`", hint);
                return None;
            }
        };
        let key = field.value.as_ref()?;
        let path = &self.compiler.path;
        let Some(level) = path.iter().position(|node| node.key == *key) else {
            let keys: Vec<&str> = path.iter().map(|node| &*node.key).collect();
            let hint = match nearest(key, keys.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("its keys are {}", keys.join(", ")),
            };
            let key = shorten(key);
            self.error(field.at, format!("no entry of this rule has the key `{key}`"), hint);
            return None;
        };
        let node = &path[level];
        let is_shared = !node.counts_per_value() && !matches!(node.matcher, Matcher::Exact(_));
        if names == PlanEntry::Customer && is_shared {
            let key = shorten(key);
            let what = format!("the values of `{key}` share a counter, whatever their plans");
            let hint = "remove `share_threshold`, or count by the part that names the customer";
            self.compiler.report.warn(field.at.in_file(&self.location.file), what, hint);
        }
        Some((names, Arc::clone(key), level))
    }

    /// The name of the limit in the plans: `limit`, or else the name of the rule.
    fn limit_name(&mut self, from: &RawLimitFrom, rule: Option<&Text>) -> Option<Arc<str>> {
        let rule = rule.filter(|name| name.value.as_deref() != Some(""));
        let Some(name) = from.limit.as_ref().or(rule) else {
            let hint = "write `limit: NAME`, the name of the limit in the plans";
            self.error(from.at, "`limit_from` has no `limit`, and the rule has no `name`", hint);
            return None;
        };
        let text = name.value.clone()?;
        if text.is_empty() {
            let hint = "write the name of the limit in the plans, or remove it";
            self.error(name.at, "`limit` is empty", hint);
            return None;
        }
        Some(text)
    }

    /// The default plan. The outer `None` means an error.
    fn default(&mut self, from: &RawLimitFrom) -> Option<Option<Arc<str>>> {
        let Some(field) = &from.default else { return Some(None) };
        let plan = field.value.clone()?;
        if plan.is_empty() {
            let hint =
                "write the name of a plan, or remove it: then the numbers of the rule decide";
            self.error(field.at, "`default` is empty", hint);
            return None;
        }
        Some(Some(plan))
    }

    fn error(&mut self, at: Position, what: impl Into<String>, hint: impl Into<String>) {
        self.compiler.report.error(at.in_file(&self.location.file), what, hint);
    }
}
