//! The laws of one value, and what exceptions allow.

use std::collections::{BTreeMap, VecDeque};

use crate::quota::Quota;
use crate::testing::simulated_bucket::{Rate, SimBucket};
use crate::time::Micros;

/// The windows of the second law, in samples: 1 s, 5 s, 30 s. The last one is the whole time.
const WINDOWS: [usize; 4] = [4, 20, 120, usize::MAX];

/// Why more than the limit may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exception {
    /// A rule begins to be divided: the counter allows calls meanwhile.
    Begins,
    /// A rule ceases to be divided: the shares of Envoys are valid, and the counter allows calls.
    Ceases,
    /// A full share allows a call with more hits than it has.
    LargeHits,
    /// A rule is divided again: callers have a full share again, without their debt.
    BeginsAgain,
    /// A value has another rule: the shares of the old one are in use.
    OtherRule,
    /// Redis does not answer about a first share, and `on_error` allows.
    NoAnswer,
    /// Instances without a memory take what a fallback passed for a share.
    Relearnt,
}

/// What an exception allows, in requests.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    exception: Exception,
    /// Requests per second, in a time.
    rate: f64,
    time: (Micros, Micros),
    /// Requests, once, in the same time.
    amount: f64,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) violations: BTreeMap<&'static str, (u64, String)>,
    /// Windows that were judged, and those that needed an exception.
    pub(super) windows: u64,
    pub(super) excused: u64,
    /// The most requests of one second, as a part of the limit.
    pub(super) most: f64,
    /// The largest sum of the rates of Envoys, as a part of the limit.
    pub(super) largest: f64,
    /// The times from the first call of an instance to the first one that passed.
    pub(super) waits: Vec<Micros>,
    /// The parts of the limit or of the demand that were used at the end.
    pub(super) used: Vec<f64>,
}

impl Figures {
    pub(super) fn violate(&mut self, law: &'static str, what: impl FnOnce() -> String) {
        self.violations.entry(law).or_insert_with(|| (0, what())).0 += 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Micros,
    admitted: f64,
    apart: f64,
    minted: f64,
    sizes: u64,
}

/// The calls of one instance.
#[derive(Debug, Default)]
struct Calls {
    first: Option<Micros>,
    passed: Option<Micros>,
    is_late: bool,
}

/// One value.
#[derive(Debug)]
pub(super) struct Judge {
    pub(super) quota: Quota,
    allowances: Vec<Allowance>,
    /// Exceptions that are none.
    pub(super) strict: bool,
    /// The instance without RLQS.
    pub(super) apart: Option<usize>,
    /// How long the first share of callers may take.
    pub(super) first_share_max: Micros,
    /// From when on its use is judged.
    pub(super) used_from: Micros,
    /// All requests that want to pass.
    pub(super) demand: f64,
    admitted: f64,
    /// By calls at the instance without RLQS.
    admitted_apart: f64,
    minted: f64,
    calls: BTreeMap<usize, Calls>,
    first: Option<Sample>,
    samples: VecDeque<Sample>,
    used: Option<(Micros, f64)>,
}

impl Judge {
    pub(super) fn new(quota: Quota) -> Judge {
        Judge {
            quota,
            allowances: Vec::new(),
            strict: false,
            apart: None,
            first_share_max: Micros::from_secs(4),
            used_from: Micros(u64::MAX),
            demand: 0.0,
            admitted: 0.0,
            admitted_apart: 0.0,
            minted: 0.0,
            calls: BTreeMap::new(),
            first: None,
            samples: VecDeque::new(),
            used: None,
        }
    }

    /// Requests per second.
    pub(super) fn limit(&self) -> f64 {
        self.quota.requests as f64 * 1e6 / self.quota.window.0 as f64
    }

    /// An exception allows `rate` requests per second from one instant to another, and `amount` more.
    pub(super) fn allow(
        &mut self,
        exception: Exception,
        rate: f64,
        amount: f64,
        time: (Micros, Micros),
    ) {
        let may_end = matches!(
            exception,
            Exception::BeginsAgain
                | Exception::OtherRule
                | Exception::NoAnswer
                | Exception::Relearnt
        );
        if !(self.strict && may_end) {
            self.allowances.push(Allowance { exception, rate, time, amount });
        }
    }

    /// What exceptions allow from one instant to another.
    fn allowed(&self, from: Micros, to: Micros) -> f64 {
        let allowed = |allowance: &Allowance| {
            let (begin, end) = (allowance.time.0.max(from), allowance.time.1.min(to));
            let seconds = end.saturating_sub(begin).0 as f64 / 1e6;
            let amount = if begin <= end { allowance.amount } else { 0.0 };
            allowance.rate * seconds + amount
        };
        self.allowances.iter().map(allowed).sum()
    }

    /// Tokens that an assignment added.
    pub(super) fn mint(&mut self, tokens: f64) {
        self.minted += tokens;
    }

    /// Law 1: the rates of all Envoys together.
    pub(super) fn rates(&self, sum: Rate, now: Micros, figures: &mut Figures) {
        let sum = sum as f64 / 1e9;
        // The shares of Envoys only: callers have none of them.
        let exceptions = [Exception::OtherRule, Exception::Relearnt];
        let active = self.allowances.iter().filter(|one| {
            exceptions.contains(&one.exception) && (one.time.0..=one.time.1).contains(&now)
        });
        let most = self.limit() + active.map(|one| one.rate).sum::<f64>();
        figures.largest = figures.largest.max(sum / self.limit());
        if sum > most + 1e-6 {
            figures.violate("1 sum", || format!("{now:?}: {sum} of {most}"));
        }
    }

    /// A call that ended.
    pub(super) fn called(
        &mut self,
        instance: usize,
        hits: u64,
        allowed: bool,
        asked: Micros,
        now: Micros,
        figures: &mut Figures,
    ) {
        let calls = self.calls.entry(instance).or_default();
        let first = *calls.first.get_or_insert(asked);
        if allowed && calls.passed.is_none() {
            calls.passed = Some(now);
            figures.waits.push(now.saturating_sub(first));
        }
        if allowed && self.apart == Some(instance) {
            self.admitted_apart += hits as f64;
        } else if allowed {
            self.admitted += hits as f64;
        }
        let waited = calls.passed.unwrap_or(now).saturating_sub(first);
        let is_late = waited > self.first_share_max;
        if is_late && !std::mem::replace(&mut calls.is_late, true) {
            let max = self.first_share_max;
            figures.violate("3 first share", || format!("{now:?}: {waited:?} of {max:?}"));
        }
    }

    /// Law 2, and the use of the limit at the end.
    pub(super) fn sample<'a>(
        &mut self,
        buckets: impl Iterator<Item = &'a mut SimBucket>,
        now: Micros,
        figures: &mut Figures,
    ) {
        let mut sizes = 0;
        for bucket in buckets {
            self.admitted += bucket.take_admitted(now);
            sizes += u64::from(bucket.size());
        }
        let (admitted, apart, minted) = (self.admitted, self.admitted_apart, self.minted);
        let sample = Sample { at: now, admitted, apart, minted, sizes };
        let first = *self.first.get_or_insert(sample);
        self.samples.push_front(sample);
        self.samples.truncate(WINDOWS[2] + 1);
        for window in WINDOWS {
            let start = match window {
                usize::MAX => first,
                _ => match self.samples.get(window) {
                    Some(start) => *start,
                    None => continue,
                },
            };
            let seconds = now.saturating_sub(start.at).0 as f64 / 1e6;
            let rated = self.limit() * seconds;
            let sizes = start.sizes as f64 + minted - start.minted;
            // That of the callers' shares, or of the counter.
            let most = rated + sizes + self.quota.burst as f64 + 1e-6;
            let passed = admitted - start.admitted;
            let allowed = self.allowed(start.at, now);
            figures.windows += 1;
            figures.excused += u64::from(passed > most);
            if window == WINDOWS[0] {
                figures.most = figures.most.max((passed + apart - start.apart) / rated);
            }
            if passed > most + allowed {
                figures.violate("2 window", || {
                    format!("{now:?}: {passed:.0} of {most:.0} + {allowed:.0} in {seconds} s")
                });
            }
            let most = rated + self.quota.burst as f64 + 1e-6;
            if apart - start.apart > most {
                figures.violate("4 apart", || format!("{now:?}: {apart:.0} of {most:.0}"));
            }
        }
        if now >= self.used_from {
            let (since, before) = *self.used.get_or_insert((now, admitted));
            let seconds = now.saturating_sub(since).0 as f64 / 1e6;
            if seconds >= 15.0 {
                let part = (admitted - before) / seconds / self.limit().min(self.demand);
                figures.used.push(part);
                self.used_from = Micros(u64::MAX);
                if part < 0.8 {
                    figures.violate("5 use", || format!("{now:?}: {part:.2} of the limit"));
                }
            }
        }
    }
}
