//! An adapter from the limits of this crate to the oracle of the crate `limit_oracle`.

use limit_oracle::{Allowed, Law, Tier, violation, violation_between};

use crate::limit::{self, Algorithm, Calendar, Limit};
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
    let allowed = |one: &Passed| Allowed { hits: one.hits, from: one.from.0, to: one.to.0 };
    let allowed: Vec<Allowed> = passed.iter().map(allowed).collect();
    let by_calendar = |tier: &limit::Tier| {
        let edges = edges(&tier.calendar?, &allowed);
        violation_between(tier.requests, &edges, &allowed)
    };
    let tiers = limit.tiers.iter().filter(|tier| tier.calendar.is_none());
    let tiers: Vec<Tier> = tiers.map(tier).collect();
    limit.tiers.iter().find_map(by_calendar).or_else(|| violation(law, &tiers, &allowed))
}

/// The edges of the windows in which the requests were allowed.
fn edges(calendar: &Calendar, allowed: &[Allowed]) -> Vec<u64> {
    let first = allowed.iter().map(|one| one.from).min().unwrap_or_default();
    let last = allowed.iter().map(|one| one.to).max().unwrap_or_default();
    let mut edges = vec![calendar.window_at(Micros(first)).0.0];
    while let Some(&edge) = edges.last()
        && edge <= last
    {
        edges.push(calendar.window_at(Micros(edge)).1.0);
    }
    edges
}
