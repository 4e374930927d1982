//! The bounds that a load may reach, and what to change then.

use serde::Serialize;

use super::inputs::{Inputs, RuleLoad};
use super::primaries::{PRIMARIES_MAX, Primaries};
use super::traffic::Traffic;
use super::{UTILIZATION_MAX, advice};
use crate::limit::Mode;
use crate::modes::{CREDIT_POOLS_MAX, DENIALS_MAX, REPLICAS_MAX};
use crate::store::IN_FLIGHT_MAX;

/// Connections that Redis accepts: the default of its setting `maxclients`.
const REDIS_CLIENTS_MAX: f64 = 10_000.0;

/// The use of a bound.
#[derive(Clone, Debug, Serialize)]
pub struct BoundUse {
    /// What is bounded.
    pub what: &'static str,
    /// The use; 1 is the bound.
    pub used: f64,
    /// What to change before the bound is reached.
    pub change: String,
}

/// The bounds, the most used first. Those that do not depend on the load are left out while less than
/// [`UTILIZATION_MAX`] of them is used.
///
/// `needed` is the fewest primaries that suffice, if any number does.
pub(super) fn uses(
    inputs: &Inputs,
    traffic: &Traffic,
    primaries: &Primaries,
    needed: Option<u32>,
) -> Vec<BoundUse> {
    let hottest = primaries.hottest();
    let round_trip = inputs.round_trip.as_secs_f64();
    let in_flight = hottest.steps_per_second / f64::from(traffic.instances) * round_trip;
    let of = |part: f64, max: usize| part / max as f64;
    let by_load = [
        (
            "CPU of an instance",
            traffic.cores(inputs.workers).high / f64::from(inputs.workers),
            "more instances, or more cores and `grpc.workers`",
        ),
        (
            "steps in flight to the hottest primary",
            of(in_flight, IN_FLIGHT_MAX),
            if needed.is_some() { "more instances or primaries" } else { "more instances" },
        ),
        (
            "full counters in the over-limit cache",
            of(traffic.denials, DENIALS_MAX),
            "rules with fewer counters; Redis denies the others",
        ),
        (
            "credit pools",
            of(traffic.credit_pools, CREDIT_POOLS_MAX),
            "`mode: leased` for fewer rules; Redis decides the other counters",
        ),
        (
            "replicas",
            of(traffic.replicas, REPLICAS_MAX),
            "`mode: synced` for fewer rules; Redis decides the other counters",
        ),
    ];
    let fixed = [
        (
            "`store.timeout`",
            round_trip / inputs.timeout.as_secs_f64(),
            "a Redis that is nearer, or a longer `store.timeout`",
        ),
        (
            "connections to a primary",
            primaries.connections / REDIS_CLIENTS_MAX,
            "a higher `maxclients` in Redis, or fewer `grpc.workers`",
        ),
        (
            "hash tags",
            primaries.loads.len() as f64 / f64::from(PRIMARIES_MAX),
            "no more primaries: the others have no counters",
        ),
    ];
    let fixed = fixed.into_iter().filter(|(_, used, _)| *used >= UTILIZATION_MAX);
    let all = by_load.into_iter().chain(fixed);
    let mut uses: Vec<BoundUse> = all
        .map(|(what, used, change)| BoundUse { what, used, change: change.to_owned() })
        .collect();
    uses.push(hottest_primary(inputs, traffic, primaries, needed));
    uses.sort_by(|a, b| b.used.total_cmp(&a.used));
    uses
}

/// The use of the hottest primary. If no number of primaries suffices, the model finds what does.
/// Otherwise more of them help, unless there are enough and one counter causes most of the use.
fn hottest_primary(
    inputs: &Inputs,
    traffic: &Traffic,
    primaries: &Primaries,
    needed: Option<u32>,
) -> BoundUse {
    let hottest = primaries.hottest();
    let used = hottest.cores.high;
    let rule = &inputs.rules[traffic.hottest_counter.0];
    let is_of_one_counter = traffic.hottest_counter.1 > hottest.steps_per_second / 2.0;
    let what = match is_of_one_counter {
        true => "CPU of the primary of one counter",
        false => "CPU of the hottest primary",
    };
    let Some(needed) = needed else {
        let effect = if is_of_one_counter { "do not help" } else { "do not suffice" };
        let change = format!("{}; more primaries {effect}", advice::change(inputs));
        return BoundUse { what, used, change };
    };
    let is_exact =
        |rule: &RuleLoad| rule.mode == Mode::Exact && rule.in_mode(Mode::Leased).is_some();
    let change = match (is_of_one_counter, needed as usize > primaries.loads.len()) {
        (true, true) if is_exact(rule) => {
            format!("more primaries, or `mode: leased` for {}", rule.place())
        }
        (false, _) if inputs.rules.iter().any(is_exact) => {
            "more primaries, or `mode: leased` for rules with busy counters".to_owned()
        }
        (true, true) | (false, _) => "more primaries".to_owned(),
        (true, false) => {
            let first = if is_exact(rule) { "`mode: leased`" } else { "more counters" };
            format!("{first} for {}; more primaries do not help", rule.place())
        }
    };
    BoundUse { what, used, change }
}
