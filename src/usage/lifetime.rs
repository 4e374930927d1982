//! How long a counter can have hits after its last one, so that its name is kept as long.

use crate::limit::{Algorithm, FILL_MAX, Limit, Tier};
use crate::time::Micros;

/// The shortest lifetime. The names of counters with shorter windows are not written more often.
const LIFETIME_MIN: Micros = Micros::from_secs(60);

/// The longest time for which a counter of `limit` is not empty after its last hit, with a margin. Its
/// reservations are settled within `reserve`. From one minute to 71 years.
pub(super) fn of_counter(limit: &Limit, reserve: Option<Micros>) -> Micros {
    let longest = limit.tiers.iter().map(|tier| of_tier(limit, tier)).max().unwrap_or_default();
    let all = longest.saturating_add(reserve.unwrap_or_default());
    // A month by the calendar is longer than its nominal window, and the clocks of nodes differ.
    let with_margin = all.saturating_add(Micros(all.0 / 8));
    with_margin.clamp(LIFETIME_MIN, FILL_MAX)
}

fn of_tier(limit: &Limit, tier: &Tier) -> Micros {
    match limit.algorithm {
        Algorithm::FixedWindow | Algorithm::SlidingWindowLog | Algorithm::Concurrency => {
            tier.window
        }
        // The hits of a window count in the next one too.
        Algorithm::SlidingWindow => tier.window.saturating_add(tier.window),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let fill = u128::from(tier.burst) * u128::from(tier.window.0);
            let fill = fill.checked_div(u128::from(tier.requests)).unwrap_or_default();
            // Denied hits that count are a debt of at most another full bucket.
            let fill = if limit.count_denied { 2 * fill } else { fill };
            Micros(u64::try_from(fill).unwrap_or(u64::MAX)).max(tier.window)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(algorithm: Algorithm, tiers: &[(u64, u64, u64)]) -> Limit {
        let tier = |&(requests, seconds, burst): &(u64, u64, u64)| Tier {
            requests,
            window: Micros::from_secs(seconds),
            burst,
            calendar: None,
        };
        Limit { algorithm, tiers: tiers.iter().map(tier).collect(), count_denied: false }
    }

    /// Every row has an algorithm, tiers (requests, seconds of the window, burst), and the seconds
    /// without the margin of an eighth.
    #[test]
    fn lifetimes_of_every_algorithm() {
        for (algorithm, tiers, seconds) in [
            (Algorithm::FixedWindow, &[(5, 800, 5)][..], 800),
            (Algorithm::FixedWindow, &[(5, 800, 5), (9, 8_000, 9)], 8_000),
            (Algorithm::SlidingWindow, &[(5, 800, 5)], 1_600),
            (Algorithm::SlidingWindowLog, &[(5, 800, 5)], 800),
            (Algorithm::Concurrency, &[(5, 800, 5)], 800),
            (Algorithm::TokenBucket, &[(5, 800, 5)], 800),
            (Algorithm::LeakyBucket, &[(5, 800, 50)], 8_000),
            (Algorithm::TokenBucket, &[(0, 800, 50)], 800),
        ] {
            let limit = limit(algorithm, tiers);
            let expected = Micros::from_secs(seconds + seconds / 8);
            assert_eq!(of_counter(&limit, None), expected, "{limit:?}");
        }
    }

    #[test]
    fn debts_and_reservations_lengthen_it() {
        let mut bucket = limit(Algorithm::TokenBucket, &[(5, 800, 5)]);
        bucket.count_denied = true;
        assert_eq!(of_counter(&bucket, None), Micros::from_secs(1_800));
        let window = limit(Algorithm::FixedWindow, &[(5, 800, 5)]);
        let reserve = Some(Micros::from_secs(800));
        assert_eq!(of_counter(&window, reserve), Micros::from_secs(1_800));
    }

    #[test]
    fn lifetimes_are_bounded() {
        let short = limit(Algorithm::FixedWindow, &[(5, 1, 5)]);
        assert_eq!(of_counter(&short, None), LIFETIME_MIN);
        let slow = limit(Algorithm::TokenBucket, &[(1, 1 << 27, 1 << 52)]);
        assert_eq!(of_counter(&slow, None), FILL_MAX);
    }
}
