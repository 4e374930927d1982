//! The bounds that a load may reach, and what to change then.

use serde::Serialize;

use super::UTILIZATION_MAX;
use super::inputs::Inputs;
use super::primaries::{PRIMARIES_MAX, Primaries};
use super::traffic::Traffic;
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
pub(super) fn uses(inputs: &Inputs, traffic: &Traffic, primaries: &Primaries) -> Vec<BoundUse> {
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
            "more instances or primaries",
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
    uses.push(hottest_primary(inputs, traffic, primaries));
    uses.sort_by(|a, b| b.used.total_cmp(&a.used));
    uses
}

/// The use of the hottest primary. If one counter causes most of it, more primaries do not help.
fn hottest_primary(inputs: &Inputs, traffic: &Traffic, primaries: &Primaries) -> BoundUse {
    let hottest = primaries.hottest();
    let used = hottest.cores.high;
    let (rule, steps) = traffic.hottest_counter;
    if steps <= hottest.steps_per_second / 2.0 {
        let what = "CPU of the hottest primary";
        let change = "more primaries, or `mode: leased` for rules with busy counters".to_owned();
        return BoundUse { what, used, change };
    }
    let rule = &inputs.rules[rule];
    let first = match rule.mode {
        Mode::Exact => "`mode: leased`",
        Mode::Leased | Mode::Synced { .. } => "more counters",
    };
    let change =
        format!("{first} for {} in domain {}; more primaries do not help", rule.rule, rule.domain);
    BoundUse { what: "CPU of the primary of one counter", used, change }
}
