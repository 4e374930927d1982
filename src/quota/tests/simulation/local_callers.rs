//! Callers of ShouldRateLimit, which use the share of their instance in the same quotas. They are Envoys
//! without a stream: their instance counts their requests, and its assignments need no message.

use super::envoy_side::REPORT_PERIOD;
use super::world::{Event, Fault, World};
use crate::quota::{Assignment, DueAssignment, HolderId, SHARES};
use crate::time::Micros;

impl World {
    /// The instance of local callers.
    pub(super) fn home(&self, envoy: usize) -> Option<usize> {
        self.envoys[envoy].home
    }

    /// The local callers of an instance ask, after it started or their demand changed: it joins the quotas.
    pub(super) fn join_local_callers(&mut self, instance: usize) {
        for envoy in 0..self.envoys.len() {
            if self.envoys[envoy].home != Some(instance) || !self.instances[instance].running {
                continue;
            }
            let asked = self.envoys[envoy].buckets.iter().filter(|(_, bucket)| bucket.demand > 0.0);
            let quotas: Vec<usize> = asked.map(|(quota, _)| *quota).collect();
            for quota in quotas {
                let holder = self.local_holder(instance, quota);
                if self.instances[instance].locals.insert(holder, envoy).is_none() {
                    self.join_group(instance, quota, holder);
                }
            }
        }
    }

    /// The time at which an instance counts what its local callers used.
    pub(super) fn count_local_callers(&mut self, envoy: usize, instance: usize, epoch: u64) {
        self.after(REPORT_PERIOD, Event::Tick { envoy, epoch });
        if !self.instances[instance].running {
            return;
        }
        self.join_local_callers(instance);
        let quotas: Vec<usize> = self.envoys[envoy].buckets.keys().copied().collect();
        for quota in quotas {
            let holder = self.local_holder(instance, quota);
            if !self.instances[instance].locals.contains_key(&holder) {
                continue;
            }
            let usage = self.usage(envoy, quota);
            let bucket = self.envoys[envoy].buckets.get_mut(&quota).expect("a bucket");
            if bucket.demand > 0.0 || usage.asked > 0 {
                bucket.idle_reports = 0;
            } else {
                bucket.idle_reports += 1;
            }
            // After 10 s the bucket is full.
            let is_idle = bucket.idle_reports > 2;
            let local = self.local(instance);
            if let Some(group) = self.instances[instance].group_mut(quota) {
                let _ = group.report(holder, usage.asked, local);
                if is_idle {
                    group.leave(holder);
                }
            }
            if is_idle {
                self.instances[instance].locals.remove(&holder);
                self.change_bucket(envoy, quota, |bucket, now| bucket.restart(now));
            }
        }
    }

    /// An assignment for local callers.
    pub(super) fn assign_local(&mut self, instance: usize, quota: usize, due: &DueAssignment) {
        let Some(envoy) = self.instances[instance].locals.get(&due.holder).copied() else { return };
        let mut due = *due;
        if self.setup.fault == Some(Fault::WholeForLocal) {
            due.assignment = Assignment::of(&self.quotas[quota].quota, SHARES);
            due.generation = self.envoys[envoy].buckets[&quota].serial as u32 + 1;
        }
        let due = &due;
        let minted =
            self.change_bucket(envoy, quota, |bucket, now| bucket.assign(due, instance, now));
        self.quotas[quota].mint(minted);
        let serial = self.envoys[envoy].buckets[&quota].serial;
        self.after(due.ttl, Event::Expired { envoy, quota, serial });
    }

    /// The process of an instance ends, and its callers with it.
    pub(super) fn end_local_callers(&mut self, instance: usize) {
        for envoy in 0..self.envoys.len() {
            if self.envoys[envoy].home != Some(instance) {
                continue;
            }
            let quotas: Vec<usize> = self.envoys[envoy].buckets.keys().copied().collect();
            for quota in quotas {
                self.change_bucket(envoy, quota, |bucket, now| bucket.restart(now));
            }
            self.disturb(envoy);
        }
        self.instances[instance].locals.clear();
    }

    /// The id of an instance in a quota, another one for each process.
    fn local_holder(&self, instance: usize, quota: usize) -> HolderId {
        let process = self.instances[instance].epoch << 8 | instance as u64;
        HolderId([1 << 62 | process, quota as u64])
    }

    /// The clock of an instance without a skew.
    pub(super) fn clock(&self) -> Micros {
        Micros(self.now.0 + 3_600_000_000)
    }
}
