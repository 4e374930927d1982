//! The documented exceptions of the first law, each with its bound.

use super::cut_offs::CutOffs;
use super::late::Late;
use super::losses::Losses;
use super::shared_names::SharedNames;
use crate::testing::simulated_bucket::{Rate, SimBucket};
use crate::time::Micros;

/// When a lower limit is right after all instances know it, at Envoys with a stream: each instance has lowered
/// its holders, read the ledger, and lowered them once more by the wants of the others.
const LOWERED: Micros = Micros::from_secs(4);

/// When all assignments of before have expired at Envoys without a stream.
const EXPIRED: Micros = Micros::from_secs(12);

/// A reload that lowers a limit.
#[derive(Clone, Copy, Debug)]
struct LoweredLimit {
    before: Rate,
    /// When all instances know it.
    known: Micros,
}

/// By how much one quota may be exceeded.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    /// What Envoys use above a lower rate whose message was lost.
    pub(super) missed: Rate,
    lowered: Option<LoweredLimit>,
    /// What Envoys without a stream use.
    detached: Rate,
    pub(super) late: Late,
    pub(super) cut_offs: CutOffs,
    pub(super) losses: Losses,
    pub(super) names: SharedNames,
}

/// Excesses over quotas by the same exceptions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExcusedExcess {
    /// How often a quota began to be exceeded.
    pub(super) times: u64,
    /// How many changes of buckets left the sum above the quota.
    pub(super) changes: u64,
    /// The largest sum, as a part of the quota.
    pub(super) largest: f64,
}

impl ExcusedExcess {
    pub(super) fn add(&mut self, other: &ExcusedExcess) {
        self.times += other.times;
        self.changes += other.changes;
        self.largest = self.largest.max(other.largest);
    }
}

impl Exceptions {
    /// Adds a bucket as it is now.
    pub(super) fn add(&mut self, bucket: &SimBucket) {
        self.missed += missed(bucket);
        self.detached += detached(bucket);
        self.late.note(bucket.envoy, bucket.rate());
        if let Some((instance, holder)) = bucket.given {
            self.cut_offs.give(instance, bucket.rate());
            if bucket.shares_name {
                self.names.add(holder, instance, bucket);
            }
        }
    }

    /// Removes a bucket before it changes.
    pub(super) fn remove(&mut self, bucket: &SimBucket, now: Micros) {
        self.missed -= missed(bucket);
        self.detached -= detached(bucket);
        if let Some((instance, holder)) = bucket.given {
            self.cut_offs.give(instance, -bucket.rate());
            self.names.remove(holder, bucket, now);
        }
    }

    /// A reload changes the limit. All instances know it at `known`.
    pub(super) fn change_limit(&mut self, before: Rate, now: Micros, known: Micros) {
        let before = self.limit(before, now);
        self.lowered = Some(LoweredLimit { before, known });
    }

    /// Whether a reload may still have an effect on the limit.
    pub(super) fn limit_changes(&self, now: Micros) -> bool {
        let expires =
            |lowered: LoweredLimit| lowered.known.saturating_add(LOWERED).saturating_add(EXPIRED);
        self.lowered.is_some_and(|lowered| now < expires(lowered))
    }

    /// The limit, or what may be in use after a reload that lowers it: the limit of before, and then what Envoys
    /// without a stream have besides.
    pub(super) fn limit(&self, limit: Rate, now: Micros) -> Rate {
        match self.lowered {
            Some(lowered) if now < lowered.known.saturating_add(LOWERED) => {
                lowered.before.max(limit)
            }
            Some(lowered) if self.limit_changes(now) => {
                limit.max((limit + self.detached).min(lowered.before))
            }
            _ => limit,
        }
    }

    /// By how much the sum may exceed the limit, apart from lost messages.
    pub(super) fn most(&self, now: Micros) -> Rate {
        self.bounds(now).into_iter().map(|(_, most)| most).sum()
    }

    /// The exceptions that allow an excess now, by name.
    pub(super) fn active(&self, now: Micros) -> Vec<&'static str> {
        let all = self.bounds(now).into_iter().chain([("message lost", self.missed)]);
        all.filter(|(_, most)| *most > 0).map(|(name, _)| name).collect()
    }

    /// What each exception allows, apart from lost messages.
    fn bounds(&self, now: Micros) -> [(&'static str, Rate); 4] {
        [
            ("instance cut off", self.cut_offs.most(now)),
            ("writes or memory lost", self.losses.most(now)),
            ("one name at two instances", self.names.most(now)),
            ("message late", self.late.most(now)),
        ]
    }
}

fn detached(bucket: &SimBucket) -> Rate {
    if bucket.lost_stream { bucket.rate() } else { 0 }
}

fn missed(bucket: &SimBucket) -> Rate {
    bucket.missed.map_or(0, |missed| (bucket.rate() - missed).max(0))
}
