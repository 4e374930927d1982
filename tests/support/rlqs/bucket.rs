//! A bucket of an Envoy: its assignment, its tokens and its usage.

use std::time::{Duration, Instant};

use super::service::rate_limit_quota_usage_reports::BucketQuotaUsage;
use super::{BucketId, BucketName};
use envoy_types::pb::google::protobuf::Duration as TheirDuration;

/// What a bucket is assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assigned {
    AllowAll,
    DenyAll,
    Bucket {
        max_tokens: u32,
        tokens_per_fill: u32,
        fill_seconds: u64,
        /// The nanoseconds of the interval. Envoy ignores them, but for whether the bucket has changed.
        generation: u32,
    },
}

impl Assigned {
    /// Requests per second.
    pub(crate) fn rate(self) -> f64 {
        match self {
            Assigned::AllowAll => f64::INFINITY,
            Assigned::DenyAll => 0.0,
            Assigned::Bucket { tokens_per_fill, fill_seconds, .. } => {
                f64::from(tokens_per_fill) / fill_seconds as f64
            }
        }
    }

    /// What Envoy compares: all but the seconds of the interval.
    fn identity(self) -> Option<(u32, u32, u32)> {
        match self {
            Assigned::Bucket { max_tokens, tokens_per_fill, generation, .. } => {
                Some((max_tokens, tokens_per_fill, generation))
            }
            _ => None,
        }
    }
}

/// A bucket.
pub(super) struct EnvoyBucket {
    assignment: Option<(Assigned, Instant)>,
    tokens: f64,
    filled_at: Instant,
    allowed: u64,
    denied: u64,
    /// `None` before the first report.
    reported_at: Option<Instant>,
    /// The part of a request that has arrived.
    arrived: f64,
}

impl EnvoyBucket {
    pub(super) fn new(now: Instant) -> EnvoyBucket {
        EnvoyBucket {
            assignment: None,
            tokens: 0.0,
            filled_at: now,
            allowed: 0,
            denied: 0,
            reported_at: None,
            arrived: 0.0,
        }
    }

    /// The assignment, unless it has expired.
    pub(super) fn assigned(&self, now: Instant) -> Option<Assigned> {
        self.assignment.filter(|(_, expires)| now < *expires).map(|(assigned, _)| assigned)
    }

    /// The requests that arrive in `elapsed` at `per_second`. Returns how many are allowed and denied.
    pub(super) fn requests(
        &mut self,
        per_second: f64,
        elapsed: Duration,
        now: Instant,
    ) -> (u64, u64) {
        self.arrived += per_second * elapsed.as_secs_f64();
        let arrived = self.arrived.floor();
        self.arrived -= arrived;
        self.decide(arrived as u64, now)
    }

    /// Decides `requests`, and counts them for the next report.
    pub(super) fn decide(&mut self, requests: u64, now: Instant) -> (u64, u64) {
        let allowed = match self.assigned(now) {
            None | Some(Assigned::DenyAll) => 0,
            Some(Assigned::AllowAll) => requests,
            Some(bucket @ Assigned::Bucket { max_tokens, .. }) => {
                let added = bucket.rate() * (now - self.filled_at).as_secs_f64();
                self.tokens = (self.tokens + added).min(f64::from(max_tokens));
                self.filled_at = now;
                let allowed = requests.min(self.tokens.floor() as u64);
                self.tokens -= allowed as f64;
                allowed
            }
        };
        self.allowed += allowed;
        self.denied += requests - allowed;
        (allowed, requests - allowed)
    }

    /// Obeys an assignment that is valid for `ttl`. A new bucket is full. One that changes keeps the share
    /// of its tokens. An interval of other seconds alone changes nothing.
    pub(super) fn assign(&mut self, new: Assigned, ttl: Duration, now: Instant) {
        self.decide(0, now);
        let old = self.assigned(now);
        let mut assigned = new;
        if let Assigned::Bucket { max_tokens, .. } = new {
            match old {
                Some(old @ Assigned::Bucket { max_tokens: before, .. }) => {
                    if old.identity() == new.identity() {
                        assigned = old;
                    } else {
                        let share = self.tokens / f64::from(before);
                        self.tokens = (share * f64::from(max_tokens)).floor();
                    }
                }
                _ => self.tokens = f64::from(max_tokens),
            }
            self.filled_at = now;
        }
        self.assignment = Some((assigned, now + ttl));
    }

    /// The usage since the last report, which it ends.
    pub(super) fn report(&mut self, name: &BucketName, now: Instant) -> BucketQuotaUsage {
        let elapsed = self.reported_at.map_or(0, |before| (now - before).as_secs());
        self.reported_at = Some(now);
        BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: name.clone().into_iter().collect() }),
            time_elapsed: Some(TheirDuration {
                seconds: i64::try_from(elapsed).expect("a short time"),
                nanos: 0,
            }),
            num_requests_allowed: std::mem::take(&mut self.allowed),
            num_requests_denied: std::mem::take(&mut self.denied),
        }
    }
}
