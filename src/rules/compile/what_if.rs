//! Turns the map under `shadow` into the what-if limit of a rule.

use super::limit_reader::{LimitReader, tier_fields};
use crate::limit::{Algorithm, Limit, Tier};
use crate::rules::file::model::{RawRateLimit, RawTier};
use crate::rules::file::reader::Field;
use crate::rules::lookup::rule::RuleLimit;

impl LimitReader<'_> {
    /// The what-if limit beside `limit`. `None` without `shadow`, and after a reported error.
    pub(super) fn what_if(
        &mut self,
        raw: &RawRateLimit,
        limit: Option<&RuleLimit>,
    ) -> Option<Limit> {
        let shadow = raw.shadow.as_deref()?;
        if raw.reserve.is_some() {
            let hint = "remove one of them: a reservation is settled on one counter";
            self.error(shadow.at, "a rule cannot have `reserve` and `shadow`", hint);
            return None;
        }
        // What is wrong with the limit itself, or with `unlimited`, is reported already.
        let Some(RuleLimit::Limit(limit)) = limit else { return None };
        if limit.counts_slots() {
            let hint = "remove it: a slot is released on one counter";
            self.error(shadow.at, "`shadow` cannot be set for `concurrency`", hint);
            return None;
        }
        let tiers = self.what_if_tiers(shadow, limit)?.into();
        let what_if = Limit { tiers, ..limit.clone() };
        self.check_bounds(&what_if, shadow);
        Some(what_if)
    }

    fn what_if_tiers(&mut self, shadow: &RawRateLimit, limit: &Limit) -> Option<Vec<Tier>> {
        let Some(Field { value, .. }) = &shadow.tiers else {
            let of_rule = if limit.tiers.len() == 1 { limit.tiers.first() } else { None };
            return Some(vec![self.what_if_tier(&shadow.tier, limit.algorithm, of_rule)?]);
        };
        self.check_fields_beside_tiers(shadow);
        let written = value.as_deref().unwrap_or_default();
        let of_rule = |index| limit.tiers.get(index).filter(|_| written.len() == limit.tiers.len());
        let tiers: Vec<_> = written
            .iter()
            .enumerate()
            .map(|(index, tier)| self.what_if_tier(tier, limit.algorithm, of_rule(index)))
            .collect();
        tiers.into_iter().collect()
    }

    /// One tier. Without its own window, it has that of the tier `of_rule`.
    fn what_if_tier(
        &mut self,
        raw: &RawTier,
        algorithm: Algorithm,
        of_rule: Option<&Tier>,
    ) -> Option<Tier> {
        let is_of_window = |name: &str| matches!(name, "unit" | "unit_multiplier" | "window");
        let has_window =
            tier_fields(raw).iter().any(|(name, at)| at.is_some() && is_of_window(name));
        // Both numbers are an error, which the reader of a whole tier reports.
        let has_both = raw.requests.is_some() && raw.requests_per_unit.is_some();
        if has_window || has_both {
            return self.tier(raw, algorithm);
        }
        let Some(of_rule) = of_rule else {
            let hint =
                "write it: the rule has another number of tiers, so none of its windows fits";
            self.error(raw.at, "`window` is missing", hint);
            return None;
        };
        let requests = raw.requests.as_ref().or(raw.requests_per_unit.as_ref());
        let hint = "write for example `requests: 200`; an explicit 0 shows every request as denied";
        let requests = self.required(requests, "requests", raw.at, hint);
        let burst = self.burst(raw, algorithm);
        let requests = requests?.value?;
        Some(Tier { requests, burst: burst?.unwrap_or(requests), ..*of_rule })
    }
}
