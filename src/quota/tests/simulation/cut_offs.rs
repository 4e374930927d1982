//! Instances without a way to the ledger that others reach. They renew their last shares without it, so the
//! sum may exceed the quota by what each of them has given.

use std::collections::BTreeMap;

use super::world::World;
use crate::testing::simulated_bucket::Rate;
use crate::time::Micros;

/// What was on its way when a cut began has arrived after this time.
const ON_THE_WAY: Micros = Micros::from_millis(250);

/// No share of a cut-off instance expires in the ledger before this time: a report renewed each of them for
/// 13 s at most 5 s before the cut, and a call or two may have failed.
const UNEXPIRED: Micros = Micros::from_secs(7);

/// When the sum is right after a cut. The instance has written its holders again, all have read them, and the
/// reports of their Envoys have moved what was lowered.
const RECOVERED: Micros = Micros::from_secs(8);

/// The state of an instance that is or was cut off.
#[derive(Debug)]
struct CutOff {
    /// When it was cut off.
    began: Micros,
    /// The same of the first cut since it last recovered.
    since: Micros,
    /// What its Envoys have by it, at most what they had when it was cut off; the least of that time.
    held: Rate,
    /// When it does not count any longer; `None` while it is cut off.
    until: Option<Micros>,
}

/// What each instance has given of one quota, and by how much the quota may be exceeded therefore.
#[derive(Debug, Default)]
pub(super) struct CutOffs {
    given: BTreeMap<usize, Rate>,
    all: BTreeMap<usize, CutOff>,
}

impl CutOffs {
    /// An assignment of `instance` changes by this rate.
    pub(super) fn give(&mut self, instance: usize, rate: Rate) {
        *self.given.entry(instance).or_default() += rate;
    }

    fn given(&self, instance: usize) -> Rate {
        self.given.get(&instance).copied().unwrap_or_default()
    }

    fn begin(&mut self, instance: usize, now: Micros) {
        let held = self.given(instance);
        let known = self.all.remove(&instance).filter(|known| !known.is_over(now));
        // Without a recovery since the last cut, shares may have expired by then.
        let since = known.map_or(now, |known| known.since);
        self.all.insert(instance, CutOff { began: now, since, held, until: None });
    }

    fn end(&mut self, instance: usize, now: Micros) {
        let given = self.given(instance);
        if let Some(known) = self.all.get_mut(&instance) {
            known.held = given;
            known.until = Some(now.saturating_add(RECOVERED));
        }
    }

    /// Notes a change. Returns an instance that has given more although it is cut off.
    pub(super) fn raised(&mut self, now: Micros) -> Option<usize> {
        let mut raised = None;
        for (instance, known) in &mut self.all {
            let given = self.given.get(instance).copied().unwrap_or_default();
            if known.until.is_some() {
                continue;
            }
            if now > known.began.saturating_add(ON_THE_WAY) && given > known.held {
                raised = Some(*instance);
            }
            known.held = given;
        }
        raised
    }

    /// By how much the sum may exceed the quota: what cut-off instances have given, if it may have expired
    /// in the ledger, and what they had given at the end of the cut until they have recovered.
    pub(super) fn most(&self, now: Micros) -> Rate {
        let counts = |known: &&CutOff| {
            let expires = known.since.saturating_add(UNEXPIRED);
            now >= expires && !known.is_over(now)
        };
        self.all.values().filter(counts).map(|known| known.held).sum()
    }
}

impl CutOff {
    fn is_over(&self, now: Micros) -> bool {
        self.until.is_some_and(|until| now >= until)
    }
}

impl World {
    /// Notes which instances are cut off, after a change of the faults.
    pub(super) fn note_cut_offs(&mut self, before: &[usize]) {
        let now = self.now;
        let after = self.cut_off_alone();
        for quota in &mut self.quotas {
            for instance in before.iter().filter(|instance| !after.contains(instance)) {
                quota.exceptions.cut_offs.end(*instance, now);
            }
            for instance in after.iter().filter(|instance| !before.contains(instance)) {
                quota.exceptions.cut_offs.begin(*instance, now);
            }
        }
    }

    /// The instances that are cut off while others are not, and that renew without the ledger.
    fn cut_off_alone(&self) -> Vec<usize> {
        let cut_off = &self.faults.cut_off;
        let is_alone = self.setup.renew_without_ledger && cut_off.len() < self.instances.len();
        if is_alone { cut_off.clone() } else { Vec::new() }
    }
}
