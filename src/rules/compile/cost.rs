//! Turns `cost` into the cost of a rule: finds the entry whose value selects the factor.

use std::sync::Arc;

use super::limit_reader::LimitReader;
use crate::limit::Cost;
use crate::rules::excerpt::shorten;
use crate::rules::file::model::RawRateLimit;
use crate::rules::file::raw_cost::RawCost;
use crate::rules::lookup::rule::RuleLimit;
use crate::spelling::nearest;

impl LimitReader<'_> {
    /// The cost of a rule with this limit, whose path has `keys`. `None` without a cost, and after a
    /// reported error.
    pub(super) fn cost<'k>(
        &mut self,
        raw: &RawRateLimit,
        limit: Option<&RuleLimit>,
        keys: impl Iterator<Item = &'k str> + Clone,
    ) -> Option<Box<Cost>> {
        let field = raw.cost.as_ref()?;
        if let Some(RuleLimit::Limit(limit)) = limit
            && limit.counts_slots()
        {
            let hint = "remove it: a request takes the slots that its `hits_addend` says";
            self.error(field.at, "`cost` cannot be set for `concurrency`", hint);
        }
        let cost = match field.value.as_ref()? {
            RawCost::Fixed(factor) => Cost::Fixed(*factor),
            RawCost::ByValue { by, factors, default } => {
                let key = by.value.as_deref()?;
                let Some(level) = keys.clone().position(|other| other == key) else {
                    let what = format!("`by` is `{}`, which is no key of this rule", shorten(key));
                    self.error(by.at, what, key_hint(key, keys));
                    return None;
                };
                Cost::ByValue { level, factors: Arc::clone(factors), default: *default }
            }
        };
        Some(Box::new(cost))
    }
}

/// The key that is probably meant, or all keys.
fn key_hint<'k>(key: &str, keys: impl Iterator<Item = &'k str> + Clone) -> String {
    match nearest(key, keys.clone()) {
        Some(meant) => format!("did you mean `{}`?", shorten(meant)),
        None => {
            let keys: Vec<String> = keys.map(|key| format!("`{}`", shorten(key))).collect();
            format!("its keys are {}", keys.join(", "))
        }
    }
}
