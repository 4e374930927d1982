//! What Envoys do in the simulated world.

use super::world::{Event, Stream, Usage, World};
use crate::quota::DueAssignment;
use crate::testing::simulated_bucket;
use crate::time::Micros;

/// The longest way of a slow message.
const SLOWEST: Micros = Micros::from_secs(5);

/// Envoy 1.40 reports at this interval.
pub(super) const REPORT_PERIOD: Micros = Micros::from_secs(5);

impl World {
    /// The timer of an Envoy: a report of all buckets, by a new stream if there is none.
    pub(super) fn tick(&mut self, envoy: usize, epoch: u64) {
        if self.envoys[envoy].epoch != epoch {
            return;
        }
        if let Some(instance) = self.home(envoy) {
            return self.count_local_callers(envoy, instance, epoch);
        }
        self.after(REPORT_PERIOD, Event::Tick { envoy, epoch });
        if self.envoys[envoy].stream.is_none() {
            self.connect(envoy);
        }
        let quotas: Vec<usize> = self.envoys[envoy].buckets.keys().copied().collect();
        let usages: Vec<Usage> = quotas.into_iter().map(|quota| self.usage(envoy, quota)).collect();
        if let Some(stream) = self.envoys[envoy].stream {
            self.send_report(stream, usages);
        }
    }

    /// A new stream to a running instance.
    fn connect(&mut self, envoy: usize) {
        let running: Vec<usize> =
            (0..self.instances.len()).filter(|index| self.instances[*index].running).collect();
        if running.is_empty() {
            return;
        }
        let instance = self.rng.pick(&running);
        self.envoys[envoy].stream = Some(self.streams.len());
        self.streams.push(Stream {
            envoy,
            instance,
            epoch: self.instances[instance].epoch,
            open: true,
            name: None,
            claimed: None,
            is_named: false,
            holders: std::collections::BTreeMap::new(),
            arrivals: [Micros::ZERO; 2],
        });
    }

    pub(super) fn usage(&mut self, envoy: usize, quota: usize) -> Usage {
        let now = self.now;
        let bucket = self.envoys[envoy].buckets.get_mut(&quota).expect("a bucket");
        let before = bucket.reported;
        let (mut asked, passed) = bucket.report(now);
        let elapsed = before.map_or(0, |before| now.saturating_sub(before).0 / 1_000_000);
        if before.is_none() {
            // The first report of a bucket is sent at its first request.
            asked = 1;
        }
        self.quotas[quota].reported(envoy, before, now);
        Usage { quota, asked, passed, elapsed }
    }

    fn send_report(&mut self, stream: usize, usages: Vec<Usage>) {
        let way = self.way(50_000);
        let arrives = self.arrival(stream, 0, way);
        self.at(arrives, Event::Report { stream, usages });
    }

    /// How long a message is on its way: `usual` at most, or longer while messages are slow.
    pub(super) fn way(&mut self, usual: u64) -> Micros {
        let way = 500 + self.rng.below(usual);
        let is_slow = self.slow > 0 && self.rng.chance(self.slow);
        Micros(way + if is_slow { self.rng.below(SLOWEST.0) } else { 0 })
    }

    /// When a message arrives that takes `way`, after all earlier ones in its direction.
    pub(super) fn arrival(&mut self, stream: usize, direction: usize, way: Micros) -> Micros {
        let last = &mut self.streams[stream].arrivals[direction];
        *last = self.now.saturating_add(way).max(*last);
        *last
    }

    /// An assignment of `sent` arrives, if the stream still exists.
    pub(super) fn assigned(
        &mut self,
        stream: usize,
        quota: usize,
        sent: Micros,
        due: &DueAssignment,
    ) {
        let envoy = self.streams[stream].envoy;
        self.quotas[quota].exceptions.late.arrived(envoy, stream, sent, due.ttl);
        if self.envoys[envoy].stream != Some(stream) {
            self.missed(stream, quota, due);
            return;
        }
        let instance = self.streams[stream].instance;
        let minted =
            self.change_bucket(envoy, quota, |bucket, now| bucket.assign(due, instance, now));
        self.quotas[quota].mint(minted);
        let serial = self.envoys[envoy].buckets[&quota].serial;
        self.after(due.ttl, Event::Expired { envoy, quota, serial });
    }

    /// A message was lost. If it lowers the rate, what the Envoy uses above it is an exception.
    fn missed(&mut self, stream: usize, quota: usize, due: &DueAssignment) {
        if !self.setup.excuse {
            return;
        }
        let rate = simulated_bucket::rate(due.assignment);
        self.change_bucket(self.streams[stream].envoy, quota, |bucket, _| {
            bucket.missed = Some(bucket.missed.map_or(rate, |missed| missed.min(rate)));
        });
    }

    /// The stream of an Envoy ends. The Envoy notices it at once, its instance after a time.
    pub(super) fn cut(&mut self, envoy: usize, noticed: Micros) {
        let Some(stream) = self.envoys[envoy].stream.take() else { return };
        self.after(noticed, Event::Ended { stream });
        self.lose_stream(envoy);
        self.disturb(envoy);
    }

    /// No message reaches an Envoy until it has another stream.
    pub(super) fn lose_stream(&mut self, envoy: usize) {
        let quotas: Vec<usize> = self.envoys[envoy].buckets.keys().copied().collect();
        for quota in quotas {
            self.change_bucket(envoy, quota, |bucket, _| bucket.lost_stream = true);
        }
    }

    /// The process of an Envoy ends, and another one starts after `pause`.
    pub(super) fn restart(&mut self, envoy: usize, pause: Micros) {
        self.cut(envoy, Micros::from_millis(5));
        self.disturb(envoy);
        let quotas: Vec<usize> = self.envoys[envoy].buckets.keys().copied().collect();
        for quota in quotas {
            self.change_bucket(envoy, quota, |bucket, now| bucket.restart(now));
        }
        let state = &mut self.envoys[envoy];
        state.epoch += 1;
        let epoch = state.epoch;
        self.after(pause, Event::Tick { envoy, epoch });
    }

    /// Shares of an Envoy may be lost until they expire.
    pub(super) fn disturb(&mut self, envoy: usize) {
        for quota in self.envoys[envoy].buckets.keys() {
            self.quotas[*quota].fault(self.now);
            self.quotas[*quota].departed = self.now;
        }
    }
}
