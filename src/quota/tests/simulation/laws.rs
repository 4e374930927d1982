//! The laws of a quota, judged after every event or at every sample.

use std::collections::{BTreeMap, VecDeque};

use super::envoy_side::REPORT_PERIOD;
use super::exceptions::{Exceptions, ExcusedExcess};
use super::liars::Liars;
use crate::quota::Quota;
use crate::testing::simulated_bucket::{Rate, SimBucket};
use crate::time::Micros;

/// The time between two samples.
pub(super) const SAMPLE_PERIOD: Micros = Micros::from_millis(250);

/// The windows of the second law, in samples: 1 s, 5 s, 30 s.
const WINDOWS: [usize; 3] = [4, 20, 120];

/// How long after a complete report of all changed demands the division is right.
pub(super) const SETTLE_TIME: Micros = Micros::from_secs(3);

/// How long after a fault it is: a lost share expires after 13 s, and then two reports follow.
pub(super) const FAULT_TIME: Micros = Micros::from_secs(26);

/// The requests of a fair part in a report interval from which a division is judged.
const REPORTED_MIN: f64 = 100.0;

/// What three Envoys with demand keep of a quota while a fourth one starts again and again.
const KEPT_MIN: f64 = 0.7;

/// After this time, as many shares of ended processes expire as there are new ones.
const FILLING_TIME: Micros = Micros::from_secs(14);

/// How long a holder with demand may be without tokens.
const STARVING_MAX: Micros = Micros::from_secs(4);

/// How long an Envoy with a stream may be without an assignment, while the ledger answers.
const UNASSIGNED_MAX: Micros = Micros::SECOND;

/// When instances have asked a ledger again that was away, or every Envoy has reported again.
const SERVED: Micros = Micros::from_secs(6);

/// The numbers of all quotas of a run.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) violations: BTreeMap<&'static str, (u64, String)>,
    /// Samples of converged quotas with more demand than quota, and the sum of their utilisations.
    pub(super) samples: u64,
    pub(super) utilisation: f64,
    /// Times from a change of demand to the right division, in milliseconds.
    pub(super) convergence: Vec<u64>,
    /// The largest part of a quota in use, also by the exceptions.
    pub(super) largest: f64,
    /// The excesses that exceptions allowed, by the names of these.
    pub(super) excused: BTreeMap<String, ExcusedExcess>,
    /// The mean part of each quota that the other Envoys had while one started again and again.
    pub(super) kept: Vec<f64>,
    /// The longest time for which two Envoys with one name used one share.
    pub(super) twice: Micros,
    /// The longest time for which an Envoy with a stream had no assignment.
    pub(super) unassigned: Micros,
    /// The requests that fallbacks passed.
    pub(super) by_fallback: f64,
}

impl Figures {
    pub(super) fn violate(&mut self, law: &'static str, what: impl FnOnce() -> String) {
        let entry = self.violations.entry(law).or_insert_with(|| (0, what()));
        entry.0 += 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    admitted: f64,
    minted: f64,
    sizes: u64,
    /// What the exceptions of the first law allow, as requests since the start.
    excess: f64,
}

/// One quota and what its holders really use.
#[derive(Debug)]
pub(super) struct SimQuota {
    pub(super) quota: Quota,
    pub(super) index: usize,
    /// The Envoys that have a bucket.
    pub(super) envoys: Vec<usize>,
    /// The sum of the rates in use, and whether it is above the quota.
    used: Rate,
    is_exceeded: bool,
    pub(super) exceptions: Exceptions,
    /// By how much the sum may exceed the limit as of the last sample, and the requests of all time.
    excess: (Rate, f64),
    sizes: u64,
    minted: f64,
    admitted: f64,
    samples: VecDeque<Sample>,
    /// Before this instant the division need not be right.
    pub(super) settles_at: Micros,
    /// The last instant at which a share was lost until it expires.
    pub(super) departed: Micros,
    /// From this instant on the ledger works, and instances know who has which share.
    pub(super) served_from: Micros,
    /// Changes of demand without a complete report: the Envoy and the instant.
    pub(super) unreported: BTreeMap<usize, Micros>,
    /// The change of demand whose convergence is measured, and the last wrong sample since.
    changed: Option<(Micros, Micros)>,
    /// The Envoy that starts again and again, and since when.
    pub(super) crashing: Option<(usize, Micros)>,
    /// The samples since then, and the sum of the parts that the other Envoys had.
    kept: (u64, f64),
    /// The client whose Envoys want everything.
    pub(super) liars: Option<Liars>,
}

impl SimQuota {
    pub(super) fn new(quota: Quota, index: usize, envoys: Vec<usize>) -> SimQuota {
        SimQuota {
            quota,
            index,
            envoys,
            used: 0,
            is_exceeded: false,
            exceptions: Exceptions::default(),
            excess: (0, 0.0),
            sizes: 0,
            minted: 0.0,
            admitted: 0.0,
            samples: VecDeque::new(),
            settles_at: FAULT_TIME,
            departed: Micros::ZERO,
            served_from: Micros::ZERO,
            unreported: BTreeMap::new(),
            changed: None,
            crashing: None,
            kept: (0, 0.0),
            liars: None,
        }
    }

    /// The rate of the quota.
    pub(super) fn limit(&self) -> Rate {
        i128::from(self.quota.requests) * 1_000_000_000_000_000 / i128::from(self.quota.window.0)
    }

    /// Sets another limit, which all instances know at `known`.
    pub(super) fn set_requests(&mut self, requests: u64, now: Micros, known: Micros) {
        self.exceptions.change_limit(self.limit(), now, known);
        self.quota.requests = requests;
        self.fault(known);
    }

    /// A fault: the division may be wrong for a while, and convergence is not measured.
    pub(super) fn fault(&mut self, now: Micros) {
        self.settles_at = self.settles_at.max(now.saturating_add(FAULT_TIME));
        self.changed = None;
    }

    /// A change of demand.
    pub(super) fn change(&mut self, envoy: usize, now: Micros, figures: &mut Figures) {
        if now >= self.settles_at && self.unreported.is_empty() {
            self.record(figures);
            self.changed = Some((now, now));
        } else if self.changed.is_some_and(|(at, _)| at != now) {
            self.changed = None;
        }
        self.unreported.insert(envoy, now);
    }

    /// Records the time to converge of the last change of demand.
    pub(super) fn record(&mut self, figures: &mut Figures) {
        if let Some((changed, wrong)) = self.changed.take() {
            figures.convergence.push(wrong.saturating_sub(changed).0 / 1_000);
        }
    }

    /// The end of a run.
    pub(super) fn end(&mut self, figures: &mut Figures) {
        self.record(figures);
        if let Some(liars) = &self.liars {
            liars.end(figures);
        }
        let (samples, sum) = self.kept;
        if samples == 0 {
            return;
        }
        let (index, kept) = (self.index, sum / samples as f64);
        figures.kept.push(kept);
        if kept < KEPT_MIN {
            figures.violate("7 crash loop", || format!("quota {index}: the others had {kept:.3}"));
        }
    }

    /// A report of a bucket, whose last one was at `before`.
    pub(super) fn reported(&mut self, envoy: usize, before: Option<Micros>, now: Micros) {
        let Some(changed) = self.unreported.get(&envoy) else { return };
        if before.is_some_and(|before| before >= *changed) {
            self.unreported.remove(&envoy);
            self.settles_at = self.settles_at.max(now.saturating_add(SETTLE_TIME));
        }
    }

    /// Applies `change` to a bucket, and checks the first law.
    pub(super) fn with<T>(
        &mut self,
        bucket: &mut SimBucket,
        now: Micros,
        figures: &mut Figures,
        change: impl FnOnce(&mut SimBucket) -> T,
    ) -> T {
        let before = bucket.rate();
        self.used -= before;
        self.exceptions.remove(bucket, now);
        self.sizes -= u64::from(bucket.size());
        let result = change(bucket);
        self.used += bucket.rate();
        self.exceptions.add(bucket);
        self.exceptions.losses.lower((before - bucket.rate()).max(0));
        self.sizes += u64::from(bucket.size());
        let limit = self.exceptions.limit(self.limit(), now);
        figures.largest = figures.largest.max(self.used as f64 / limit as f64);
        let index = self.index;
        if let Some(instance) = self.exceptions.cut_offs.raised(now) {
            figures.violate("8 raised without a ledger", || {
                format!("{now:?} quota {index}: instance {instance}")
            });
        }
        let most = limit + self.exceptions.most(now);
        if self.used - self.exceptions.missed > most {
            let (used, missed) = (self.used, self.exceptions.missed);
            figures.violate("1 sum", || {
                format!("{now:?} quota {index}: {used} of {most} in use, {missed} excused")
            });
        } else if self.used > limit {
            let excess = ExcusedExcess {
                times: u64::from(!self.is_exceeded),
                changes: 1,
                largest: self.used as f64 / limit as f64,
            };
            let names = self.exceptions.active(now).join(", ");
            figures.excused.entry(names).or_default().add(&excess);
        }
        self.is_exceeded = self.used > limit;
        result
    }

    /// Tokens that an assignment added.
    pub(super) fn mint(&mut self, tokens: f64) {
        self.minted += tokens;
    }

    /// A sample, with the buckets of all Envoys: their index, whether they have an open stream, and the
    /// bucket.
    pub(super) fn sample(
        &mut self,
        mut buckets: Vec<(usize, bool, &mut SimBucket)>,
        now: Micros,
        figures: &mut Figures,
    ) {
        self.exceptions.names.judge(self.index, now, figures);
        self.admitted += buckets.iter_mut().map(|(_, _, b)| b.take_admitted(now)).sum::<f64>();
        self.judge_windows(now, figures);
        for (envoy, connected, bucket) in &mut buckets {
            let starves = *connected && bucket.demand > 0.0 && bucket.rate() == 0;
            bucket.starved = if starves { bucket.starved.or(Some(now)) } else { None };
            let lost_until = self.departed.saturating_add(Micros::from_secs(14));
            let since = bucket.starved.map(|since| since.max(lost_until));
            if since.is_some_and(|since| now > since.saturating_add(STARVING_MAX)) {
                figures.violate("3 starving", || format!("{now:?} quota {} {envoy}", self.index));
            }
        }
        self.judge_unassigned(&mut buckets, now, figures);
        let limit = self.limit() as f64 / 1e9;
        if let Some(liars) = &mut self.liars {
            liars.sample(&buckets, limit, now);
            return;
        }
        if limit * 5.0 / (buckets.len() as f64) < REPORTED_MIN {
            self.changed = None;
            return;
        }
        let demand: f64 = buckets.iter().map(|(_, _, bucket)| bucket.demand).sum();
        let flow: f64 = buckets.iter().map(|(_, _, bucket)| bucket.flow()).sum();
        if let Some((crashing, since)) = self.crashing
            && now > since.saturating_add(FILLING_TIME)
        {
            let others = buckets.iter().filter(|(envoy, _, _)| *envoy != crashing);
            let kept: f64 = others.map(|(_, _, bucket)| bucket.flow()).sum();
            self.kept = (self.kept.0 + 1, self.kept.1 + kept / limit);
        }
        let (reached, idle) = (flow / demand.min(limit).max(1e-9), demand == 0.0);
        let unfair = unfairness(&buckets);
        if ((!idle && reached < 0.95) || unfair > 0.1)
            && let Some((_, wrong)) = &mut self.changed
        {
            *wrong = now;
        }
        if now < self.settles_at || !self.unreported.is_empty() {
            return;
        }
        if demand > limit {
            figures.samples += 1;
            figures.utilisation += flow / limit;
        }
        let index = self.index;
        if !idle && reached < 0.95 {
            figures.violate("4, 5 utilisation", || {
                format!("{now:?} quota {index}: {flow:.2} of {demand:.2}, limit {limit:.2}")
            });
        }
        if unfair > 0.1 && now >= self.settles_at.saturating_add(REPORT_PERIOD) {
            figures.violate("5, 6 fairness", || format!("{now:?} quota {index}: {unfair:.3}"));
        }
    }

    /// Judges that every Envoy with a stream soon has an assignment.
    fn judge_unassigned(
        &self,
        buckets: &mut [(usize, bool, &mut SimBucket)],
        now: Micros,
        figures: &mut Figures,
    ) {
        let served = self.served_from.saturating_add(SERVED);
        for (envoy, connected, bucket) in buckets {
            let waits = *connected && !bucket.is_local && !bucket.is_assigned();
            bucket.unassigned = if waits { bucket.unassigned.or(Some(now)) } else { None };
            let since = bucket.unassigned.map(|since| since.max(served));
            let waited = since.map_or(Micros::ZERO, |since| now.saturating_sub(since));
            figures.unassigned = figures.unassigned.max(waited);
            if waited > UNASSIGNED_MAX && !bucket.shares_name {
                figures.violate("11 unassigned", || {
                    format!("{now:?} quota {} Envoy {envoy}: {waited:?}", self.index)
                });
            }
        }
    }

    fn judge_windows(&mut self, now: Micros, figures: &mut Figures) {
        let (before, excess) = (self.excess.0, self.exceptions.most(now));
        let seconds = SAMPLE_PERIOD.0 as f64 / 1e6;
        self.excess = (excess, self.excess.1 + before.max(excess) as f64 / 1e9 * seconds);
        let sample = Sample {
            admitted: self.admitted,
            minted: self.minted,
            sizes: self.sizes,
            excess: self.excess.1,
        };
        self.samples.push_front(sample);
        self.samples.truncate(WINDOWS[2] + 1);
        if self.exceptions.missed > 0 || self.exceptions.limit_changes(now) {
            self.samples.truncate(1);
        }
        for window in WINDOWS {
            let Some(start) = self.samples.get(window) else { continue };
            let seconds = window as f64 * SAMPLE_PERIOD.0 as f64 / 1e6;
            let rated = self.limit() as f64 / 1e9 * seconds;
            let rated = rated + sample.excess - start.excess;
            let most = rated + start.sizes as f64 + sample.minted - start.minted;
            let admitted = sample.admitted - start.admitted;
            if admitted > most * (1.0 + 1e-9) + 1e-6 {
                let index = self.index;
                figures.violate("2 window", || {
                    format!("{now:?} quota {index}: {admitted} of {most} in {seconds} s")
                });
            }
        }
    }
}

/// The largest difference of the rates of two Envoys with equal demand, as a part of the larger rate.
fn unfairness(buckets: &[(usize, bool, &mut SimBucket)]) -> f64 {
    let mut by_demand: Vec<(f64, f64)> = buckets
        .iter()
        .filter(|(_, connected, bucket)| *connected && bucket.demand > 0.0)
        .map(|(_, _, bucket)| (bucket.demand, bucket.flow()))
        .collect();
    by_demand.sort_unstable_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    let mut worst = 0.0_f64;
    let mut least = (f64::NAN, 0.0);
    for (demand, flow) in by_demand {
        if demand != least.0 {
            least = (demand, flow);
        }
        worst = worst.max((flow - least.1) / flow.max(1e-9));
    }
    worst
}
