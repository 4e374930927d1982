//! Decides a pending descriptor by the share of this instance, if its rule is divided.

use super::divided::{DividedResult, DividedRules};
use super::pending::PendingDescriptor;
use super::resolved::ResolvedDescriptor;

impl PendingDescriptor<'_> {
    /// Decides by the share of this instance. Returns whether the counter is not needed. Never waits: until
    /// the instance has a share, its calls are decided by the counter.
    pub(super) fn query_share(&mut self, rules: &dyn DividedRules) -> bool {
        match self.share_result(rules) {
            DividedResult::NotDivided => false,
            DividedResult::ByCounter => {
                self.owes_share = true;
                false
            }
            DividedResult::Decided(decision) => {
                self.by_share = true;
                // The share comes from the store.
                self.by_shared_store = true;
                self.result = Some(Ok(decision));
                true
            }
        }
    }

    /// Charges the hits that the counter allowed to the share that this instance does not have yet.
    pub(super) fn charge_share(&mut self, rules: &dyn DividedRules) {
        let allowed = matches!(&self.result, Some(Ok(decision)) if decision.allowed);
        self.owes_share &= allowed;
        if let ResolvedDescriptor::Counter(query) = &self.resolved
            && self.owes_share
            && let Some(check) = query.divided_check(self.local_now)
        {
            rules.charge(&check);
        }
    }

    fn share_result(&self, rules: &dyn DividedRules) -> DividedResult {
        let ResolvedDescriptor::Counter(query) = &self.resolved else {
            return DividedResult::NotDivided;
        };
        // Only the limit of the rule is divided.
        if self.what_if_of.is_some() {
            return DividedResult::NotDivided;
        }
        let check = query.divided_check(self.local_now);
        check.map_or(DividedResult::NotDivided, |check| rules.check(&check))
    }
}
