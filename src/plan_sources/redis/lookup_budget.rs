//! The bound on lookups of customers: a token bucket with a token per customer.
//!
//! A client can invent names of customers without end, and each is unknown. All lookups of an instance go
//! to the one node that has the hash of customers. So new customers take tokens only from the upper half
//! of the bucket. The lower half is left for customers in memory, about whom Redis is asked again after
//! changes were missed: no flood of new names delays them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::StoreError;
use crate::time::Micros;

/// The tokens of a full bucket, in seconds of its rate. An instance that starts knows no customer.
const CAPACITY_SECONDS: u64 = 10;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A token bucket. Threads share it.
#[derive(Debug)]
pub(super) struct LookupBudget {
    /// The time in which a token comes back, in nanoseconds.
    period: u64,
    /// When the bucket is full, in nanoseconds of the clock.
    full_at: AtomicU64,
}

/// The customers of one request about whom Redis is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AdmittedCustomers<'c> {
    pub(super) customers: Vec<&'c str>,
    /// The number of the others.
    pub(super) skipped: usize,
}

impl LookupBudget {
    /// A full bucket with a rate of `per_second` customers, which must not be 0.
    pub(super) fn new(per_second: u32) -> LookupBudget {
        let period = (NANOS_PER_SECOND / u64::from(per_second.max(1))).max(1);
        LookupBudget { period, full_at: AtomicU64::new(0) }
    }

    /// Takes the tokens of `customers` at `now`: those in memory first, and then the new ones, each in
    /// their order until the tokens are spent.
    pub(super) fn admit<'c>(
        &self,
        customers: &[&'c str],
        is_in_memory: impl Fn(&str) -> bool,
        now: Micros,
    ) -> AdmittedCustomers<'c> {
        let capacity = CAPACITY_SECONDS * NANOS_PER_SECOND;
        let (known, new): (Vec<&'c str>, Vec<&'c str>) =
            customers.iter().copied().partition(|customer| is_in_memory(customer));
        let mut admitted = Vec::with_capacity(customers.len());
        for (some, most) in [(known, capacity), (new, capacity / 2)] {
            let tokens = if some.is_empty() { 0 } else { self.take(some.len(), most, now) };
            admitted.extend(some.into_iter().take(tokens));
        }
        AdmittedCustomers { skipped: customers.len() - admitted.len(), customers: admitted }
    }

    /// Takes at most `tokens`, so that the bucket then lacks at most `most` nanoseconds of its rate. Returns
    /// how many.
    fn take(&self, tokens: usize, most: u64, now: Micros) -> usize {
        let now = now.0.saturating_mul(1_000);
        let mut taken = 0;
        let next = |full_at: u64| {
            let start = full_at.max(now);
            let room = most.saturating_sub(start - now) / self.period;
            taken = tokens.min(usize::try_from(room).unwrap_or(usize::MAX));
            let length = self.period.saturating_mul(taken as u64);
            (taken > 0).then(|| start.saturating_add(length))
        };
        let updated = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        if updated.is_ok() { taken } else { 0 }
    }

    /// Gives the tokens of `customers` back, if their call failed before it was sent to Redis.
    pub(super) fn failed(&self, customers: usize, error: StoreError) {
        let is_unsent =
            matches!(error, StoreError::BreakerOpen | StoreError::Busy | StoreError::Unreachable);
        if is_unsent {
            let length = self.period.saturating_mul(customers as u64);
            let back = |full_at: u64| Some(full_at.saturating_sub(length));
            // It always has a next value.
            let _ = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Micros = Micros::from_secs(1_700_000_000);

    /// How many of the customers, one per request, are admitted at `now`.
    fn admitted(budget: &LookupBudget, requests: usize, is_in_memory: bool, now: Micros) -> usize {
        let admit = |_: &usize| budget.admit(&["acme"], |_| is_in_memory, now).skipped == 0;
        (0..requests).filter(admit).count()
    }

    fn after(millis: u64) -> Micros {
        START.saturating_add(Micros::from_millis(millis))
    }

    #[test]
    fn new_customers_have_half_of_the_bucket() {
        let budget = LookupBudget::new(100);
        assert_eq!(admitted(&budget, 10_000, false, START), 500);
        assert_eq!(admitted(&budget, 10, false, after(9)), 0);
        assert_eq!(admitted(&budget, 10, false, after(10)), 1, "a token came back");
        assert_eq!(admitted(&budget, 10_000, false, after(1_010)), 100, "the rate");
        assert_eq!(admitted(&budget, 10_000, false, after(3_600_000)), 500, "full again");
    }

    #[test]
    fn a_flood_leaves_tokens_for_known_customers() {
        let budget = LookupBudget::new(100);
        assert_eq!(admitted(&budget, 10_000, false, START), 500);
        assert_eq!(admitted(&budget, 10_000, true, START), 500, "the other half");
        // Customers in memory take all tokens that come back, before new ones get any.
        for second in 1..5 {
            let now = after(1_000 * second);
            assert_eq!(admitted(&budget, 10_000, false, now), 0, "{second}");
            assert_eq!(admitted(&budget, 10_000, true, now), 100, "{second}");
        }
        assert_eq!(admitted(&budget, 10_000, false, after(9_000)), 0);
        assert_eq!(admitted(&budget, 10_000, false, after(9_010)), 1, "half is back");
    }

    #[test]
    fn customers_of_a_request_are_admitted_together() {
        let budget = LookupBudget::new(1);
        let is_in_memory = |customer: &str| customer.starts_with("known");
        let admit = |customers: &[&'static str]| budget.admit(customers, is_in_memory, START);
        let all = admit(&["a", "known", "b", "c"]);
        assert_eq!((all.customers, all.skipped), (vec!["known", "a", "b", "c"], 0));
        let some = admit(&["a", "known", "b"]);
        assert_eq!((some.customers, some.skipped), (vec!["known"], 2));
        for _ in 0..5 {
            assert_eq!(admit(&["known"]).skipped, 0);
        }
        let none = AdmittedCustomers { customers: Vec::new(), skipped: 2 };
        assert_eq!(admit(&["known", "a"]), none);
    }

    /// A request may name more new customers than the upper half of the bucket has tokens.
    #[test]
    fn many_new_customers_are_admitted_up_to_the_bound() {
        let budget = LookupBudget::new(1);
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        let first = budget.admit(&many, |_| false, START);
        assert_eq!((first.customers, first.skipped), (many[..5].to_vec(), 2));
        let next = budget.admit(&many[5..], |_| false, after(1_000));
        assert_eq!((next.customers, next.skipped), (vec!["f"], 1));
    }

    #[test]
    fn calls_that_were_not_sent_take_no_tokens() {
        for error in StoreError::ALL {
            let budget = LookupBudget::new(1);
            assert_eq!(budget.admit(&["a", "b"], |_| false, START).skipped, 0);
            budget.failed(2, error);
            let is_unsent = matches!(error.name(), "breaker_open" | "busy" | "unreachable");
            let expected = if is_unsent { 5 } else { 3 };
            assert_eq!(admitted(&budget, 10, false, START), expected, "{error:?}");
        }
    }

    /// Neither a very early nor a very late instant, nor a high rate, causes an overflow.
    #[test]
    fn extreme_instants_are_safe() {
        for now in [Micros::ZERO, START, Micros(u64::MAX)] {
            let budget = LookupBudget::new(1_000_000);
            let found = admitted(&budget, 10, false, now);
            assert_eq!(found, 10, "{now:?}");
        }
    }
}
