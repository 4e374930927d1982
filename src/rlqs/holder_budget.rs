//! The bound on local holders.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::lingering::Lingering;
use crate::time::Micros;

/// Local holders, and those that were removed while their quotas are left. The second kind counts
/// too, because the quotas are in memory.
#[derive(Debug)]
pub(super) struct HolderBudget {
    max: u64,
    reserved: AtomicU64,
    /// Removed holders.
    lingering: Mutex<Lingering<()>>,
}

impl HolderBudget {
    /// At most `max` holders.
    pub(super) fn new(max: usize) -> HolderBudget {
        let (reserved, lingering) = (AtomicU64::new(0), Mutex::new(Lingering::new()));
        HolderBudget { max: max as u64, reserved, lingering }
    }

    /// Counts one more holder. Returns whether the bound permits it.
    pub(super) fn reserve(&self) -> bool {
        let is_free = self.reserved.fetch_add(1, Ordering::Relaxed) < self.max;
        if !is_free {
            self.reserved.fetch_sub(1, Ordering::Relaxed);
        }
        is_free
    }

    /// A holder was removed whose quota is left until `until`.
    pub(super) fn release_at(&self, until: Micros) {
        self.lingering.lock().unwrap_or_else(PoisonError::into_inner).add(until, ());
    }

    /// Frees the holders that do not count any longer.
    pub(super) fn expire(&self, now: Micros) {
        let mut lingering = self.lingering.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(((), number)) = lingering.take_expired(now) {
            self.reserved.fetch_sub(number, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_holder_counts_until_its_quota_is_gone() {
        let budget = HolderBudget::new(3);
        let reserve = |number: usize| (0..number).filter(|_| budget.reserve()).count();
        assert_eq!(reserve(5), 3);
        let second = |seconds| Micros::from_secs(seconds);
        budget.release_at(Micros(12_500_000));
        budget.release_at(second(13));
        budget.release_at(second(14));
        budget.expire(Micros(12_999_999));
        assert_eq!(reserve(5), 0);
        budget.expire(second(13));
        assert_eq!(reserve(5), 2);
        budget.expire(second(14));
        assert_eq!(reserve(5), 1);
    }
}
