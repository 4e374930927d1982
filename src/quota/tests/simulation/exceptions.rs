//! The documented exceptions of the first law, each with its bound.

use super::cut_offs::CutOffs;
use super::envoy::{Rate, SimBucket};
use super::losses::Losses;
use super::shared_names::SharedNames;
use crate::time::Micros;

/// By how much one quota may be exceeded.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    /// What Envoys use above a lower rate whose message was lost.
    pub(super) missed: Rate,
    /// The limit is larger until then: a reload lowers it.
    pub(super) larger: Option<(Micros, Rate)>,
    pub(super) cut_offs: CutOffs,
    pub(super) losses: Losses,
    pub(super) names: SharedNames,
}

impl Exceptions {
    /// Adds a bucket as it is now.
    pub(super) fn add(&mut self, bucket: &SimBucket) {
        self.missed += missed(bucket);
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
        if let Some((instance, holder)) = bucket.given {
            self.cut_offs.give(instance, -bucket.rate());
            self.names.remove(holder, bucket, now);
        }
    }

    /// The limit, as it was before a reload that lowers it.
    pub(super) fn limit(&self, limit: Rate, now: Micros) -> Rate {
        match self.larger {
            Some((until, larger)) if now < until => larger.max(limit),
            _ => limit,
        }
    }

    /// By how much the sum may exceed the limit, apart from lost messages.
    pub(super) fn most(&self, now: Micros) -> Rate {
        self.cut_offs.most(now) + self.losses.most(now) + self.names.most(now)
    }
}

fn missed(bucket: &SimBucket) -> Rate {
    bucket.missed.map_or(0, |missed| (bucket.rate() - missed).max(0))
}
