//! An adapter from the limits of this crate to the oracle of the crate `limit_oracle`.

use limit_oracle::{Allowed, Law, Tier, violation};

use crate::limit::{self, Algorithm, Limit};
use crate::time::Micros;

/// An allowed request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) hits: u64,
    /// The instant that the request read.
    pub(super) from: Micros,
    /// The instant of the response.
    pub(super) to: Micros,
}

/// The first violation of `limit`.
pub(super) fn broken(limit: &Limit, passed: &[Passed]) -> Option<String> {
    let law = match limit.algorithm {
        Algorithm::FixedWindow => Law::FixedWindow,
        Algorithm::SlidingWindow => Law::SlidingWindow,
        _ => Law::Bucket,
    };
    let tier = |tier: &limit::Tier| Tier {
        requests: tier.requests,
        window: tier.window.0,
        burst: tier.burst,
    };
    let tiers: Vec<Tier> = limit.tiers.iter().map(tier).collect();
    let allowed = |one: &Passed| Allowed { hits: one.hits, from: one.from.0, to: one.to.0 };
    let allowed: Vec<Allowed> = passed.iter().map(allowed).collect();
    violation(law, &tiers, &allowed)
}
