//! Many Envoys of one client that want everything, beside honest clients.

use super::envoy::SimEnvoy;
use super::laws::{Figures, SimQuota};
use super::world::Action;
use crate::quota::{PartClaim, SHARES, fair_parts};
use crate::testing::Rng;
use crate::testing::simulated_bucket::SimBucket;
use crate::time::Micros;

/// The honest clients: the first one has two Envoys, and the second one has one.
const CLIENT_OF_HONEST: [u64; 3] = [0, 0, 1];

/// The client of the others.
const LIAR: u64 = 2;

/// All Envoys.
pub(super) const ENVOYS: usize = 20;

/// From when on the honest clients are judged. One of their Envoys starts again at half of this time.
const SETTLED: Micros = Micros::from_secs(60);

/// What an honest client has in the mean, as a part of what it would have beside a single liar.
const KEPT_MIN: f64 = 0.9;

/// The honest clients of a quota, and what they have.
#[derive(Debug)]
pub(super) struct Liars {
    samples: u64,
    /// By client.
    kept: [f64; 2],
}

/// Makes the first Envoys honest, and the others liars.
pub(super) fn arrange(rng: &mut Rng, envoys: &mut [SimEnvoy], quota: &mut SimQuota) {
    // Reports have whole requests, so a small quota shows little.
    (quota.quota.requests, quota.quota.window) = (rng.pick(&[300, 1_000, 50_000]), Micros::SECOND);
    quota.quota.burst = quota.quota.requests / 5;
    quota.liars = Some(Liars { samples: 0, kept: [0.0; 2] });
    let limit = quota.quota.requests as f64;
    for (index, envoy) in envoys.iter_mut().enumerate() {
        let honest = CLIENT_OF_HONEST.get(index).copied();
        envoy.client = honest.unwrap_or(LIAR);
        let parts = if honest.is_some() { [0.1, 0.3, 0.6, 1.5] } else { [0.5, 1.0, 3.0, 9.0] };
        let demand = rng.pick(&parts) * limit;
        envoy.buckets.values_mut().for_each(|bucket| bucket.demand = demand);
    }
}

/// An honest Envoy starts again once. Each liar keeps its stream, or starts again and again.
pub(super) fn actions(rng: &mut Rng, length: Micros) -> Vec<(Micros, Action)> {
    let honest = rng.below(CLIENT_OF_HONEST.len() as u64) as usize;
    let mut actions = vec![(Micros(SETTLED.0 / 2), Action::Reopen { envoy: honest })];
    let periods = [300, 1_000, 2_500, 6_000, 14_000].map(Micros::from_millis);
    let churning = rng.pick(&[0, 50, 100]);
    for envoy in CLIENT_OF_HONEST.len()..ENVOYS {
        let mut at = Micros(rng.below(14_000_000));
        let period = rng.pick(&periods);
        while rng.chance(churning) && at < length {
            actions.push((at, Action::Reopen { envoy }));
            at = at.saturating_add(period);
        }
    }
    actions
}

impl Liars {
    /// A sample of all buckets of the quota.
    pub(super) fn sample(
        &mut self,
        buckets: &[(usize, bool, &mut SimBucket)],
        limit: f64,
        now: Micros,
    ) {
        if now < SETTLED {
            return;
        }
        let (mut demands, mut flows) = ([0.0; 2], [0.0; 2]);
        for (envoy, _, bucket) in buckets {
            if let Some(client) = CLIENT_OF_HONEST.get(*envoy) {
                demands[*client as usize] += bucket.demand;
                flows[*client as usize] += bucket.flow();
            }
        }
        let want = |demand: f64| (demand / limit * SHARES as f64) as u64;
        let wants = [want(demands[0]), want(demands[1]), u64::MAX];
        let parts = fair_parts(SHARES, &wants.map(|want| PartClaim { held: 0, want }));
        self.samples += 1;
        for (client, kept) in self.kept.iter_mut().enumerate() {
            *kept += flows[client] / (parts[client] as f64 / SHARES as f64 * limit);
        }
    }

    /// The end of a run.
    pub(super) fn end(&self, figures: &mut Figures) {
        for (client, kept) in self.kept.iter().enumerate() {
            let kept = kept / self.samples.max(1) as f64;
            figures.kept.push(kept);
            if kept < KEPT_MIN {
                figures
                    .violate("10 liars", || format!("client {client} had {kept:.3} of its part"));
            }
        }
    }
}
