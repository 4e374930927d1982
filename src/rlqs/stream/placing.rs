//! Where the buckets of a stream belong: their quotas, by the active rules.

use std::sync::Arc;

use super::super::bucket_id::{self, BucketKey};
use super::super::counter_quota::ReportedUse;
use super::super::engine::QuotaEngine;
use super::super::found_place::FoundPlace;
use super::super::member::Recipient;
use super::super::outbox::DueAction;
use super::super::quota_action::QuotaAction;
use super::super::quota_rule::QuotaRule;
use super::super::refused_reason::RefusedReason;
use super::super::usage_report::IdPairs;
use super::{EnvoyBucket, EnvoyStream, ReportScope};
use crate::key::CounterKey;
use crate::quota::HolderId;
use crate::time::Micros;

/// Where the use of a bucket counts.
#[derive(Clone, Debug)]
pub(super) enum BucketPlace {
    /// Every request passes.
    AllowAll(Option<Arc<QuotaRule>>),
    /// Envoy's `no_assignment_behavior` decides.
    Unassigned(Arc<QuotaRule>),
    /// A holder of a quota.
    Divided {
        key: CounterKey,
        holder: HolderId,
        rule: Arc<QuotaRule>,
        /// How long it stays without requests.
        idle: Micros,
    },
    /// It is idle, and the action that says so waits in the outbox.
    Abandoned,
}

impl BucketPlace {
    /// The rule that counts its requests.
    pub(super) fn rule(&self) -> Option<&QuotaRule> {
        match self {
            BucketPlace::AllowAll(rule) => rule.as_deref(),
            BucketPlace::Unassigned(rule) | BucketPlace::Divided { rule, .. } => Some(rule),
            BucketPlace::Abandoned => None,
        }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self, BucketPlace::Abandoned)
    }

    fn allows_all(&self) -> bool {
        matches!(self, BucketPlace::AllowAll(_))
    }
}

impl EnvoyStream {
    /// Adds a bucket, which has no place yet. Returns whether the bounds permit it.
    pub(super) fn add_bucket(
        &mut self,
        at: &ReportScope<'_>,
        key: BucketKey,
        pairs: &IdPairs<'_>,
    ) -> bool {
        let ReportScope { engine, domain, now, .. } = *at;
        let refused = |reason| {
            engine.metrics.refuse(reason, domain, now);
            false
        };
        if self.buckets.len() >= engine.config.max_buckets_per_stream {
            return refused(RefusedReason::BucketsOfStream);
        }
        let id = match bucket_id::encoded(pairs) {
            Ok(id) => id,
            Err(error) => return refused(error.refused_reason()),
        };
        if let Err(reason) = engine.reserve_bucket(self.client) {
            return refused(reason);
        }
        self.id_bytes += id.len();
        let place = BucketPlace::Abandoned;
        self.buckets.insert(key, EnvoyBucket { id, place, version: 0, last_demand: now });
        true
    }

    /// Finds the place of a bucket, and counts its use there. Without a use, after a reload of the rules, the
    /// bucket gets another assignment if it has another place.
    pub(super) fn place_bucket(
        &mut self,
        at: &ReportScope<'_>,
        key: BucketKey,
        pairs: &IdPairs<'_>,
        used: Option<ReportedUse>,
    ) {
        let ReportScope { engine, domain, version, now } = *at;
        let found = engine.find_place(domain, pairs, now);
        let Some(bucket) = self.buckets.get_mut(&key) else { return };
        bucket.version = version;
        if let (BucketPlace::Divided { key: old, idle, .. }, FoundPlace::Divided(new)) =
            (&mut bucket.place, &found)
            && *old == new.key
        {
            *idle = engine.idle_time(&new.quota);
            let Some(used) = used else { return };
            if self.use_bucket(at, key, used) {
                return;
            }
        }
        let holder = self.identity.holder(pairs);
        let Some(bucket) = self.buckets.get_mut(&key) else { return };
        let new = match &found {
            FoundPlace::AllowAll(rule) => BucketPlace::AllowAll(rule.clone()),
            FoundPlace::Unassigned(rule) => BucketPlace::Unassigned(rule.clone()),
            FoundPlace::Divided(place) => BucketPlace::Divided {
                key: place.key,
                holder,
                rule: place.rule.clone(),
                idle: engine.idle_time(&place.quota),
            },
        };
        let old = std::mem::replace(&mut bucket.place, new);
        let moved = match (&old, &found) {
            (BucketPlace::Divided { key: from, holder, .. }, FoundPlace::Divided(to))
                if *from != to.key =>
            {
                engine.outstanding(from, &to.key, *holder, key, now)
            }
            _ => None,
        };
        leave(engine, &old, now);
        match found {
            FoundPlace::Divided(place) => {
                let (outbox, name) = (self.outbox.clone(), self.name.clone());
                let to = Recipient::Bucket { outbox, bucket: key, name };
                // An error is handled with the next report, which returns it again.
                let _ = engine.join(place, holder, to, used, moved, now);
            }
            // It has this assignment, which only a report renews.
            FoundPlace::AllowAll(_) if used.is_none() && old.allows_all() => {}
            FoundPlace::AllowAll(_) => self.allow_all(engine, key, now),
            FoundPlace::Unassigned(_) => {}
        }
    }

    /// Counts the use of a bucket where it belongs, and renews its assignment. Returns false if the
    /// bucket needs another place: another instance has its holder, so two Envoys have one name.
    pub(super) fn use_bucket(
        &mut self,
        at: &ReportScope<'_>,
        key: BucketKey,
        used: ReportedUse,
    ) -> bool {
        let ReportScope { engine, domain, now, .. } = *at;
        let Some(bucket) = self.buckets.get_mut(&key) else { return true };
        match &bucket.place {
            BucketPlace::AllowAll(_) => self.allow_all(engine, key, now),
            BucketPlace::Divided { key: quota, holder, .. } => {
                if engine.report(quota, *holder, used, now).is_err() {
                    engine.metrics.refuse(RefusedReason::NameInUse, domain, now);
                    let old = std::mem::replace(&mut bucket.place, BucketPlace::Abandoned);
                    leave(engine, &old, now);
                    // The other buckets of the stream move in the same way.
                    self.drop_name(at);
                    return false;
                }
            }
            BucketPlace::Unassigned(_) | BucketPlace::Abandoned => {}
        }
        true
    }

    /// Assigns that everything passes.
    fn allow_all(&self, engine: &QuotaEngine, key: BucketKey, now: Micros) {
        let ttl_seconds = engine.config.assignment_ttl.0 / Micros::SECOND.0;
        let action = QuotaAction::ALLOW_ALL;
        self.outbox.put(key, DueAction { action, at: now, ttl_seconds });
    }

    /// Gives up the instance name for buckets without a place, and for the next streams.
    fn drop_name(&mut self, at: &ReportScope<'_>) {
        if let Some(name) = self.name.take() {
            self.identity.drop_name();
            at.engine.names.contest(self.client, at.domain, &name, at.now);
        }
    }
}

/// Removes a bucket from its place.
pub(super) fn leave(engine: &QuotaEngine, place: &BucketPlace, now: Micros) {
    if let BucketPlace::Divided { key, holder, rule, .. } = place {
        engine.leave(key, *holder, rule.id, now);
    }
}
