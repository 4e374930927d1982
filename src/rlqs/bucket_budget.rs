//! The bound on the buckets of all streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::time::Micros;

/// Buckets of open streams, and those of ended streams whose assignments may still be in use. The
/// second kind counts too, because the ledgers have their holders: a client that opens and closes
/// streams cannot add more.
#[derive(Debug)]
pub(super) struct BucketBudget {
    max: u64,
    reserved: AtomicU64,
    /// Ended buckets, with the instant from which they do not count.
    lingering: Mutex<VecDeque<(Micros, u64)>>,
}

impl BucketBudget {
    /// At most `max` buckets.
    pub(super) fn new(max: usize) -> BucketBudget {
        let (reserved, lingering) = (AtomicU64::new(0), Mutex::default());
        BucketBudget { max: max as u64, reserved, lingering }
    }

    /// Counts one more bucket. Returns whether the bound permits it.
    pub(super) fn reserve(&self) -> bool {
        let is_free = self.reserved.fetch_add(1, Ordering::Relaxed) < self.max;
        if !is_free {
            self.release();
        }
        is_free
    }

    /// A bucket without a holder ended.
    pub(super) fn release(&self) {
        self.reserved.fetch_sub(1, Ordering::Relaxed);
    }

    /// A bucket ended whose holder the ledger has until `until`.
    pub(super) fn release_at(&self, until: Micros) {
        // Rounded up to a second, so that the list stays short.
        let until = Micros::from_secs(until.ceil_secs());
        let mut lingering = self.lingering.lock().unwrap_or_else(PoisonError::into_inner);
        match lingering.back_mut() {
            Some((last, number)) if *last >= until => *number += 1,
            _ => lingering.push_back((until, 1)),
        }
    }

    /// Frees the buckets that do not count any longer.
    pub(super) fn expire(&self, now: Micros) {
        let mut lingering = self.lingering.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((until, number)) = lingering.front().copied()
            && until <= now
        {
            lingering.pop_front();
            self.reserved.fetch_sub(number, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_bucket_counts_until_its_holding_expires() {
        let budget = BucketBudget::new(3);
        let reserve = |number: usize| (0..number).filter(|_| budget.reserve()).count();
        assert_eq!(reserve(5), 3);
        budget.release();
        assert_eq!(reserve(5), 1);
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
