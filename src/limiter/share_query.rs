//! Decides a pending descriptor by the share of this instance, if its rule is divided.

use std::time::Duration;

use super::divided::{DividedResult, DividedRules};
use super::pending::PendingDescriptor;
use super::resolved::ResolvedDescriptor;
use crate::store::{StoreError, with_timeout};

impl PendingDescriptor<'_> {
    /// Decides by the share of this instance without waiting. Returns whether the counter is not
    /// needed.
    pub(super) fn query_share(&mut self, rules: &dyn DividedRules) -> bool {
        let result = self.share_result(rules);
        self.conclude_share(result)
    }

    /// Decides by the share of this instance, and waits for its first share: at most `timeouts`.
    /// Returns whether the counter is not needed.
    pub(super) async fn query_share_joined(
        &mut self,
        rules: &dyn DividedRules,
        timeouts: [Option<Duration>; 2],
    ) -> bool {
        let mut result = self.share_result(rules);
        if let (DividedResult::Joining, ResolvedDescriptor::Counter(query)) =
            (result, &self.resolved)
        {
            let joined = rules.joined(&query.key);
            let joined = match timeouts.into_iter().flatten().min() {
                Some(timeout) => with_timeout(timeout, joined).await,
                None => joined.await,
            };
            result = match joined {
                Ok(()) => self.share_result(rules),
                Err(error) => DividedResult::Failed(error),
            };
        }
        self.conclude_share(result)
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

    fn conclude_share(&mut self, result: DividedResult) -> bool {
        let result = match result {
            DividedResult::NotDivided => return false,
            DividedResult::Decided(decision) => Ok(decision),
            // Left again while this request waited, or asked where nothing waits.
            DividedResult::Joining => Err(StoreError::Timeout),
            DividedResult::Failed(error) => Err(error),
        };
        self.by_share = true;
        // The share comes from the store.
        self.by_shared_store = result.is_ok();
        self.result = Some(result);
        true
    }
}
