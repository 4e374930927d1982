//! Numbers of tiers, which replace those of a rule: by a plan, or for a time.

use super::{Limit, LimitError, Tier};

/// The numbers of one tier. Its window stays that of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierNumbers {
    /// Hits that pass per window. 0 denies all.
    pub requests: u64,
    /// The size of a bucket. `None` keeps the size of the rule. A size that equals the rule's requests
    /// then becomes that of `requests`, as without `burst` in a rule file.
    pub burst: Option<u64>,
}

/// Why numbers do not fit a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumbersError {
    /// Numbers of fewer or of more tiers than the limit has.
    #[error("the numbers are of {numbers} tiers, and the rule has {tiers}; write one per tier")]
    Count {
        /// The tiers that the numbers are for.
        numbers: usize,
        /// The tiers of the limit.
        tiers: usize,
    },
    /// A burst for an algorithm without one.
    #[error("`burst` applies only to buckets, and the rule has none; remove it")]
    NoBucket,
    /// Numbers that no rule may have.
    #[error("tier {tier}: {problem}")]
    Tier {
        /// The number of the tier, from 1.
        tier: usize,
        /// What is wrong.
        problem: LimitError,
    },
}

impl Limit {
    /// This limit with other numbers: one item of `numbers` per tier. The algorithm and the windows
    /// stay, so both limits have the same counters.
    ///
    /// # Errors
    ///
    /// The first reason why the numbers do not fit.
    pub fn with_numbers(&self, numbers: &[TierNumbers]) -> Result<Limit, NumbersError> {
        if numbers.len() != self.tiers.len() {
            let (numbers, tiers) = (numbers.len(), self.tiers.len());
            return Err(NumbersError::Count { numbers, tiers });
        }
        if !self.algorithm.has_burst() && numbers.iter().any(|one| one.burst.is_some()) {
            return Err(NumbersError::NoBucket);
        }
        let tiers = self.tiers.iter().zip(numbers).map(|(tier, numbers)| tier.with(*numbers));
        let limit = Limit {
            algorithm: self.algorithm,
            tiers: tiers.collect(),
            count_denied: self.count_denied,
        };
        let first = limit.problems().next();
        match first {
            None => Ok(limit),
            Some((tier, problem)) => {
                Err(NumbersError::Tier { tier: tier.unwrap_or_default() + 1, problem })
            }
        }
    }
}

impl Tier {
    /// This tier with other numbers.
    fn with(&self, numbers: TierNumbers) -> Tier {
        let requests = numbers.requests;
        let kept = if self.burst == self.requests { requests } else { self.burst };
        Tier { requests, burst: numbers.burst.unwrap_or(kept), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, HITS_END};
    use crate::time::Micros;

    fn limit(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Limit {
        let minute = Limit::fixed_window(1, Micros::from_secs(60)).tiers[0];
        let tier = |&(requests, burst): &(u64, u64)| Tier { requests, burst, ..minute };
        let tiers = tiers.iter().map(tier).collect();
        Limit { algorithm, tiers, count_denied: false }
    }

    fn numbers(requests: u64, burst: Option<u64>) -> TierNumbers {
        TierNumbers { requests, burst }
    }

    #[test]
    fn numbers_replace_those_of_each_tier() {
        let window = limit(Algorithm::FixedWindow, &[(10, 10), (100, 100)]);
        let changed = window.with_numbers(&[numbers(0, None), numbers(7, None)]).unwrap();
        assert_eq!(changed, limit(Algorithm::FixedWindow, &[(0, 0), (7, 7)]));
        let bucket = |burst| limit(Algorithm::TokenBucket, &[(10, burst)]);
        for (of_rule, given, burst) in
            [(10, None, 50), (30, None, 30), (10, Some(5), 5), (30, Some(5), 5)]
        {
            let changed = bucket(of_rule).with_numbers(&[numbers(50, given)]).unwrap();
            assert_eq!(changed, limit(Algorithm::TokenBucket, &[(50, burst)]), "{of_rule}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let window = limit(Algorithm::FixedWindow, &[(10, 10), (100, 100)]);
        let one = numbers(1, None);
        assert_eq!(window.with_numbers(&[one]), Err(NumbersError::Count { numbers: 1, tiers: 2 }));
        assert_eq!(window.with_numbers(&[one, numbers(1, Some(1))]), Err(NumbersError::NoBucket));
        let large = window.with_numbers(&[one, numbers(HITS_END, None)]);
        let problem = LimitError::Requests(HITS_END, HITS_END);
        assert_eq!(large, Err(NumbersError::Tier { tier: 2, problem }));
        let bucket = limit(Algorithm::LeakyBucket, &[(10, 10)]);
        let empty = bucket.with_numbers(&[numbers(1, Some(0))]);
        assert_eq!(empty, Err(NumbersError::Tier { tier: 1, problem: LimitError::NoBurst }));
        let slots = limit(Algorithm::Concurrency, &[(10, 10)]);
        assert!(slots.with_numbers(&[numbers(100_001, None)]).is_err());
    }
}
