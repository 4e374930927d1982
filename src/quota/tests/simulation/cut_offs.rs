//! Instances without a way to the ledger that others reach. They renew their last shares without it, so the
//! sum may exceed the quota by what each of them held.

use std::collections::BTreeMap;

use super::envoy::Rate;
use super::world::World;
use crate::time::Micros;

/// What was on its way when a cut began has arrived after this time. No share has expired by then.
const ON_THE_WAY: Micros = Micros::from_millis(500);

/// When the sum is right after a cut: the instance has written its holders again, and all have read them.
const RECOVERED: Micros = Micros::from_secs(10);

#[derive(Debug)]
struct CutOff {
    since: Micros,
    /// What its Envoys had when it was cut off.
    held: Rate,
    /// When it does not count any longer; `None` while it is cut off.
    until: Option<Micros>,
}

/// The instances of which one quota may be exceeded.
#[derive(Debug, Default)]
pub(super) struct CutOffs(BTreeMap<usize, CutOff>);

impl CutOffs {
    fn begin(&mut self, instance: usize, used: Rate, now: Micros) {
        let held = self.0.remove(&instance).map_or(used, |before| before.held.max(used));
        self.0.insert(instance, CutOff { since: now, held, until: None });
    }

    fn end(&mut self, instance: usize, now: Micros) {
        if let Some(known) = self.0.get_mut(&instance) {
            known.until = Some(now.saturating_add(RECOVERED));
        }
    }

    fn observe(&mut self, instance: usize, used: Rate, now: Micros) {
        if let Some(known) = self.0.get_mut(&instance)
            && now <= known.since.saturating_add(ON_THE_WAY)
        {
            known.held = known.held.max(used);
        }
    }

    /// By how much the sum may exceed the quota.
    pub(super) fn most(&self, now: Micros) -> Rate {
        let counts = |known: &&CutOff| known.until.is_none_or(|until| now < until);
        self.0.values().filter(counts).map(|known| known.held).sum()
    }
}

impl World {
    /// Notes which instances are cut off, after a change of the faults.
    pub(super) fn note_cut_offs(&mut self, before: &[usize]) {
        let now = self.now;
        let after = self.cut_off_alone();
        for quota in 0..self.quotas.len() {
            for instance in before.iter().filter(|instance| !after.contains(instance)) {
                self.quotas[quota].cut_offs.end(*instance, now);
            }
            for instance in after.iter().filter(|instance| !before.contains(instance)) {
                let used = self.used_at(quota, *instance);
                self.quotas[quota].cut_offs.begin(*instance, used, now);
            }
        }
    }

    /// Looks at what the Envoys of cut-off instances have.
    pub(super) fn observe_cut_offs(&mut self) {
        for instance in self.cut_off_alone() {
            for quota in 0..self.quotas.len() {
                let used = self.used_at(quota, instance);
                self.quotas[quota].cut_offs.observe(instance, used, self.now);
            }
        }
    }

    /// The instances that are cut off while others are not, and that renew without the ledger.
    fn cut_off_alone(&self) -> Vec<usize> {
        let cut_off = &self.faults.cut_off;
        let is_alone = self.setup.renew_without_ledger && cut_off.len() < self.instances.len();
        if is_alone { cut_off.clone() } else { Vec::new() }
    }

    /// The rates of a quota that the Envoys of an instance have.
    fn used_at(&self, quota: usize, instance: usize) -> Rate {
        let envoys = self.quotas[quota].envoys.iter().map(|envoy| &self.envoys[*envoy]);
        let of_instance = envoys.filter(|envoy| {
            envoy.stream.is_some_and(|stream| self.streams[stream].instance == instance)
        });
        of_instance.filter_map(|envoy| envoy.buckets.get(&quota)).map(|bucket| bucket.rate()).sum()
    }
}
