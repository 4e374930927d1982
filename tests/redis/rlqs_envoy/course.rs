//! The steps of the acceptance, each with its bounds.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::time::{Duration, Instant};

use super::QUOTA;
use crate::support::quota_run::assigned::largest_sum;
use crate::support::quota_run::record::check;
use crate::support::quota_run::{Run, until};
use crate::support::weir::Weir;

/// The most requests of all Envoys in a second: the quota and a fifth of it as a burst.
pub(super) const MOST: u64 = QUOTA as u64 * 6 / 5;

/// The mean of the requests of all Envoys in a second, if they want more than the quota.
const USED: RangeInclusive<f64> = QUOTA as f64 * 0.95..=QUOTA as f64 * 1.01;

/// Time after which a change of demand has moved shares: one report and 3 s.
const MOVED: usize = 8;

/// Time from one report to the next, in seconds.
const REPORT: usize = 5;

/// How long a weir that counts in memory learns shares after its start: the life of an assignment and a second.
const LEARNT: Duration = Duration::from_secs(11);

/// From the instant at which weir serves: the time until Envoys have streams, and until shares are right.
const STREAMS: Duration = Duration::from_secs(6);
const SHARES: Duration = Duration::from_secs(12);

/// Running Envoys, and the steps that they have taken.
pub(super) struct Course {
    pub(super) run: Run,
    /// The first second of each step, and its name.
    pub(super) steps: Vec<(usize, &'static str)>,
}

impl Course {
    pub(super) fn begin(run: Run) -> Course {
        Course { run, steps: Vec::new() }
    }

    /// Starts a step. Returns its first second.
    fn step(&mut self, name: &'static str) -> usize {
        let second = self.run.second();
        self.steps.push((second, name));
        second
    }

    /// Step A: demands of 400, 100 and 50. `settled` seconds later, for `seconds`, the two small ones are
    /// served, and at least 95 % of the quota is used.
    pub(super) fn steady(&mut self, settled: usize, seconds: usize) -> Result<(), String> {
        let from = self.step("A") + settled;
        let span = self.passed(from, seconds);
        let record = self.run.record();
        record.at_most(MOST, span.clone())?;
        record.mean(USED, span.clone())?;
        record.served(1, span.clone())?;
        record.served(2, span)
    }

    /// Step B: demands of 50, 400 and 50. The first report after the change shows a little of the demand before,
    /// which is lost to the others until the next one. After that, at least 95 % of the quota is used.
    pub(super) fn swapped(&mut self, seconds: usize) -> Result<(), String> {
        let second = self.step("B");
        self.run.demand(&[50, 400, 50]);
        let span = self.passed(second + MOVED, seconds);
        let record = self.run.record();
        record.at_most(MOST, second..span.end)?;
        self.swapped_shares(span)?;
        let span = self.passed(second + MOVED + REPORT, 4);
        self.run.record().mean(USED, span)
    }

    /// The shares of step B.
    pub(super) fn swapped_shares(&self, span: Range<usize>) -> Result<(), String> {
        let record = self.run.record();
        record.served(0, span.clone())?;
        record.at_least(1, 150.0, span.clone())?;
        record.served(2, span)
    }

    /// Step C: demands of 400, 400 and 50. The large ones get as much as each other, the small one is served,
    /// and at least 95 % of the quota is used.
    pub(super) fn two_large(&mut self, seconds: usize) -> Result<(), String> {
        let second = self.step("C");
        self.run.demand(&[400, 400, 50]);
        let span = self.passed(second + MOVED, seconds);
        let record = self.run.record();
        record.at_most(MOST, second..span.end)?;
        record.mean(USED, span.clone())?;
        record.served(2, span.clone())?;
        let [one, other] = [0, 1].map(|envoy| record.admitted(envoy, span.clone()));
        check((one - other).abs() <= one.max(other) / 10.0, || format!("{one} and {other}"))
    }

    /// Step L: three Envoys with demands of 400, of which the first two have one address. That has a half of
    /// the quota, of which each of the two has a half.
    pub(super) fn one_address(&mut self, seconds: usize) -> Result<(), String> {
        let second = self.step("L");
        let span = self.passed(second + 2 * MOVED, seconds);
        let record = self.run.record();
        record.at_most(MOST, second..span.end)?;
        record.mean(USED, span.clone())?;
        let quota = f64::from(QUOTA);
        let parts = [quota / 4.0, quota / 4.0, quota / 2.0];
        for (envoy, part) in parts.into_iter().enumerate() {
            let admitted = record.admitted(envoy, span.clone());
            check((admitted - part).abs() <= part / 10.0, || {
                format!("Envoy {envoy} had {admitted} of {part}")
            })?;
        }
        Ok(())
    }

    /// What living Envoys admit in the next 4 s after one has got the share of another: `receiver` at least
    /// `rate`, the others what they want, and all together at least 95 % of the quota.
    fn living_shares(&self, receiver: usize, rate: f64) -> Result<(), String> {
        let span = self.passed(self.run.second() + 1, 4);
        let record = self.run.record();
        record.mean(USED, span.clone())?;
        record.at_least(receiver, rate, span.clone())?;
        let mut others = self.run.alive().into_iter().filter(|envoy| *envoy != receiver);
        others.try_for_each(|envoy| record.served(envoy, span.clone()))
    }

    /// Step D: an Envoy is killed. When its last assignment has expired, and at most 2 s later, `receiver`
    /// has at least `rate`.
    pub(super) fn envoy_killed(
        &mut self,
        killed: usize,
        receiver: usize,
        rate: f64,
        ttl: Duration,
    ) -> Result<(), String> {
        let second = self.step("D");
        self.run.kill(killed);
        until(Instant::now() + ttl + Duration::from_secs(2));
        let assigned = self.run.assigned(receiver);
        check(assigned >= rate, || format!("{assigned} of at least {rate} are assigned"))?;
        self.living_shares(receiver, rate)?;
        self.run.record().at_most(MOST, second..self.run.second())
    }

    /// Step E: weir is killed. Assignments are valid until they expire, then Envoy denies.
    pub(super) fn weir_killed(&mut self, weir: Weir) -> Result<(), String> {
        let second = self.run.second();
        self.server_killed(weir)?;
        let (last, record) = (self.run.second(), self.run.record());
        record.at_most(MOST, second..last)?;
        record.at_most(0, last - 1..last)
    }

    /// weir is killed, and another one follows at once.
    pub(super) fn killed_before_restart(&mut self, weir: Weir) {
        drop(weir);
        let now = Instant::now();
        self.run.needs_no_answer(now, now);
    }

    /// The same. What passes after the end of the assignments is up to the fallbacks of the Envoys. Waits until
    /// a second after it.
    pub(super) fn server_killed(&mut self, weir: Weir) -> Result<(), String> {
        let second = self.step("E");
        drop(weir);
        let never = Instant::now() + Duration::from_secs(3_600);
        self.run.needs_no_answer(Instant::now(), never);
        let actions = self.run.actions();
        let last =
            self.run.alive().into_iter().filter_map(|envoy| actions[envoy].last()?.expires());
        let ends: Vec<Instant> = last.collect();
        let first = *ends.iter().min().ok_or("no Envoy has an assignment")?;
        let last = *ends.iter().max().ok_or("no Envoy has an assignment")?;
        // Whole seconds: those before any assignment expires, and one that begins 1 s after all have.
        let held = second + 1..self.run.second_of(first);
        self.passed(self.run.second_of(last) + 2, 1);
        let record = self.run.record();
        record.at_most(MOST, second..held.end)?;
        check(held.len() >= 2, || format!("all assignments expire in {held:?}"))?;
        let totals = record.totals(held.clone());
        check(totals.iter().all(|total| *total >= 200), || format!("{totals:?} in {held:?}"))?;
        self.run.check_alive()
    }

    /// After E, with fallbacks that pass requests: the first Envoy passes `rate`, and the others everything.
    pub(super) fn fallbacks_decide(&mut self, rate: u32) -> Result<(), String> {
        let span = self.passed(self.run.second() + 2, 4);
        let record = self.run.record();
        let first = record.admitted(0, span.clone());
        let rate = f64::from(rate);
        check((first - rate).abs() <= rate / 10.0, || format!("{first} of {rate} in {span:?}"))?;
        record.served(1, span.clone())?;
        record.served(2, span)
    }

    /// Step F after E, with fallbacks that pass requests: the server that `start` returns follows. What the
    /// fallbacks pass looks as if shares had allowed it, so up to two quotas may pass until all Envoys have
    /// reported. After that the quota holds, and when the server has learnt the shares, they are right.
    pub(super) fn restarted_after_fallbacks(
        &mut self,
        start: impl FnOnce() -> SocketAddr,
    ) -> Result<(), String> {
        let second = self.step("F with fallbacks");
        let address = start();
        self.run.retarget(address);
        self.run.answers_again(Instant::now() + LEARNT);
        let reported = second + STREAMS.as_secs() as usize + 2;
        let learnt = reported + LEARNT.as_secs() as usize;
        let span = self.passed(learnt + MOVED, 5);
        let record = self.run.record();
        record.at_most_in_any(2 * u64::from(QUOTA) + MOST, second..reported)?;
        record.at_most_in_any(MOST, reported..span.end)?;
        record.mean(USED, span.clone())?;
        record.served(1, span.clone())?;
        record.served(2, span)
    }

    /// Step F: weir starts. Envoys have streams 6 s later, and 12 s later `receiver` has at least `rate`. In
    /// between they have assignments of the weir before and of this one.
    pub(super) fn restarted(
        &mut self,
        name: &'static str,
        receiver: usize,
        rate: f64,
        start: impl FnOnce() -> Weir,
    ) -> Result<Weir, String> {
        let second = self.step(name);
        let weir = start();
        self.run.retarget(weir.grpc);
        let began = Instant::now();
        self.run.answers_again(began + LEARNT);
        until(began + SHARES);
        let assigned = self.run.assigned(receiver);
        let is_back = |envoy: &usize| {
            let reports = self.run.reports(*envoy);
            reports.iter().any(|report| report.at >= began && report.at <= began + STREAMS)
        };
        let lost: Vec<usize> = self.run.alive().into_iter().filter(|one| !is_back(one)).collect();
        check(lost.is_empty(), || format!("Envoys {lost:?} have no stream"))?;
        check(assigned >= rate, || format!("{assigned} of at least {rate} are assigned"))?;
        self.living_shares(receiver, rate)?;
        let end = self.run.second();
        self.run.record().at_most_in_any(MOST, second..end)?;
        Ok(weir)
    }

    /// Step H: a weir of two is killed. When the shares of its Envoys have expired and these report to the
    /// other, the shares are right.
    pub(super) fn one_of_two_killed(&mut self, weir: Weir, ttl: Duration) -> Result<(), String> {
        let second = self.step("H");
        drop(weir);
        let now = Instant::now();
        self.run.needs_no_answer(now, now);
        let right = second + ttl.as_secs() as usize + 7;
        let span = self.passed(right, 4);
        self.run.record().at_most(MOST, second..span.end)?;
        self.run.record().mean(USED, span.clone())?;
        self.swapped_shares(span)?;
        self.run.check_alive()
    }

    /// Waits for `seconds` from second `from` on.
    pub(super) fn passed(&self, from: usize, seconds: usize) -> Range<usize> {
        self.run.until_second(from + seconds);
        from..from + seconds
    }

    /// Step K: each message has what Envoy needs.
    pub(super) fn check_messages(&self) -> Result<(), String> {
        self.run.check_messages()
    }

    /// What Envoys admitted, by their clients: never more than the quota of a time, and what they had saved up.
    pub(super) fn check_admitted(&self) -> Result<(), String> {
        let quota = u64::from(QUOTA);
        self.run.record().within(quota, quota / 5, 0..self.run.second())
    }

    /// What Envoys were assigned at the same time was never more than the quota. This does not hold after
    /// a restart of a weir that counts in memory: it does not know the assignments before.
    pub(super) fn check_sum(&self) -> Result<(), String> {
        let sum = largest_sum(&self.run.actions(), Instant::now());
        check(sum <= f64::from(QUOTA) + 1e-6, || format!("{sum} per second were assigned"))
    }
}
