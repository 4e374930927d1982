//! The stream of one Envoy: its reports, its buckets, and the actions for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::bucket_id::BucketKey;
use super::counter_quota::{CounterQuota, ReportedUse};
use super::engine::QuotaEngine;
use super::holder_identity::HolderIdentity;
use super::id_error::check_pairs;
use super::member::Member;
use super::outbox::{DueAction, Outbox};
use super::quota_action::QuotaAction;
use super::refused_reason::RefusedReason;
use super::usage_report::{BucketUsage, UsageReport};
use crate::client_address::ClientAddress;
use crate::key::CounterKey;
use crate::quota::{HOLDER_BYTES, HolderId, Holding};
use crate::time::Micros;

mod placing;
mod rules_watch;

use placing::{BucketPlace, leave};
use rules_watch::{RulesWatch, wait};

/// Most actions of one message.
const ACTIONS_MAX: usize = 1_000;

/// A message with this size gets no further action. Clients accept 4 MiB by default.
const MESSAGE_BYTES: usize = 1 << 20;

/// Largest instance name in bytes.
const NAME_MAX: usize = 64;

/// What the memory of the client counts for a bucket, besides its id: about half of
/// [`BUCKET_BYTES_MAX`]. `rlqs.max_buckets` bounds the tables themselves.
const BUCKET_BYTES: usize = 2
    * (size_of::<EnvoyBucket>()
        + size_of::<Member>()
        + size_of::<CounterQuota>()
        + 2 * size_of::<(HolderId, Holding)>()
        + size_of::<(BucketKey, DueAction)>()
        + size_of::<BucketKey>()
        + 8 * size_of::<CounterKey>());

/// The most bytes of a bucket in all tables, without its id: 4 KiB. docs/operate/memory.md and the
/// chart calculate with it. Half of a table may be free, and a table of one member has room for four.
const BUCKET_BYTES_MAX: usize = 4096;

const _: () = assert!(
    2 * size_of::<(BucketKey, EnvoyBucket)>()
        + 2 * size_of::<(BucketKey, DueAction)>()
        + 2 * size_of::<(CounterKey, CounterQuota)>()
        + 4 * size_of::<(HolderId, Member)>()
        + 2 * size_of::<BucketKey>()
        + 8 * size_of::<(Micros, CounterKey)>()
        + HOLDER_BYTES
        <= BUCKET_BYTES_MAX
);

/// The stream of one Envoy. Dropping it ends its buckets: their shares are free when their last
/// assignments have expired.
pub struct EnvoyStream {
    engine: Arc<QuotaEngine>,
    client: ClientAddress,
    /// The instance name. It counts only if no other stream of the client in the domain has it, and no other
    /// instance.
    name: Option<Arc<str>>,
    /// The name that no other stream of the client in the domain gets. It stays when another instance has it, because
    /// buckets of this stream may still have its holders.
    claimed: Option<Arc<str>>,
    /// Set by the first report.
    domain: Option<Arc<str>>,
    /// What the holders of its buckets have in common.
    identity: HolderIdentity,
    buckets: HashMap<BucketKey, EnvoyBucket>,
    outbox: Arc<Outbox>,
    rules: RulesWatch,
    /// Bytes of the encoded ids.
    id_bytes: usize,
    /// When idle buckets were last looked for.
    swept_at: Micros,
}

impl fmt::Debug for EnvoyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, domain, buckets) = (&self.name, &self.domain, self.buckets.len());
        let mut shown = f.debug_struct("EnvoyStream");
        shown.field("name", name).field("domain", domain).field("buckets", &buckets);
        shown.finish_non_exhaustive()
    }
}

/// A bucket of the stream.
#[derive(Debug)]
struct EnvoyBucket {
    /// The encoded `BucketId`.
    id: Box<[u8]>,
    place: BucketPlace,
    /// The version of the rules that found the place.
    version: u64,
    /// When it last had a request.
    last_demand: Micros,
}

/// What all usages of one report have in common.
#[derive(Clone, Copy)]
struct ReportScope<'a> {
    engine: &'a QuotaEngine,
    domain: &'a str,
    /// Of the rules.
    version: u64,
    now: Micros,
}

/// Why a report ends its stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The report is invalid (`INVALID_ARGUMENT`).
    #[error("{0}")]
    Invalid(String),
    /// The report is too large (`RESOURCE_EXHAUSTED`).
    #[error("{0}")]
    TooLarge(String),
}

/// Too many streams are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "at most {max} RLQS streams may be open, and of one client address at most as many as are \
     left; close some, or raise rlqs.max_streams"
)]
pub struct StreamsFull {
    /// The bound of all clients.
    pub max: usize,
}

impl QuotaEngine {
    /// Opens the stream of an Envoy at the address `client`. `name` is its `x-weir-instance`, of at
    /// most 64 bytes: an Envoy with a name has its shares again after it has reconnected from this address.
    ///
    /// # Errors
    ///
    /// [`StreamsFull`] with `rlqs.max_streams` open streams, or if the address has as many as are
    /// left.
    pub fn open(
        self: &Arc<Self>,
        client: ClientAddress,
        name: Option<&str>,
    ) -> Result<EnvoyStream, StreamsFull> {
        let now = self.clock.now();
        if let Err(reason) = self.reserve_stream(client) {
            self.metrics.refuse(reason, "", now);
            return Err(StreamsFull { max: self.config.max_streams });
        }
        let name = name.filter(|name| (1..=NAME_MAX).contains(&name.len()));
        Ok(EnvoyStream {
            engine: self.clone(),
            client,
            name: name.map(Arc::from),
            claimed: None,
            domain: None,
            identity: HolderIdentity::random(&self.seed, client),
            buckets: HashMap::new(),
            outbox: Arc::default(),
            rules: RulesWatch::new(self.applied_rules.subscribe()),
            id_bytes: 0,
            swept_at: now,
        })
    }
}

impl EnvoyStream {
    /// Counts one encoded `RateLimitQuotaUsageReports`.
    ///
    /// A bucket over a bound is left out: it has no assignment. The other buckets count.
    ///
    /// # Errors
    ///
    /// The report is too large, is not a report, or has another domain than the first one. The stream
    /// must end.
    pub fn report(&mut self, message: &[u8]) -> Result<(), ReportError> {
        let engine = self.engine.clone();
        let now = engine.clock.now();
        let max = engine.config.max_message_bytes;
        let domain = || self.domain.clone().unwrap_or_default();
        if message.len() > max {
            engine.metrics.refuse(RefusedReason::Message, &domain(), now);
            return Err(ReportError::TooLarge(format!(
                "a report of {} bytes is larger than {max}; raise rlqs.max_message_bytes, or put \
                 fewer values into bucket ids",
                message.len()
            )));
        }
        let invalid = |domain: &str, error: &dyn fmt::Display| {
            engine.metrics.refuse(RefusedReason::Message, domain, now);
            ReportError::Invalid(error.to_string())
        };
        let mut report = UsageReport::read(message, engine.config.bounds.max_entries)
            .map_err(|error| invalid(&domain(), &error))?;
        let domain = self.enter_domain(report.domain, now)?;
        // Before the rules are read, so that a change in between is noticed with the next report.
        let version = engine.rules.version();
        let at = ReportScope { engine: &engine, domain: &domain, version, now };
        while let Some(usage) = report.next().map_err(|error| invalid(&domain, &error))? {
            engine.metrics.reports.add();
            self.count(&at, &usage);
        }
        self.abandon_idle(now);
        Ok(())
    }

    /// Waits for actions, and returns them as an encoded `RateLimitQuotaResponse`. After a reload of the
    /// rules it also finds the actions. Cancel-safe.
    pub async fn next(&mut self) -> Bytes {
        loop {
            let next_slice = self.place_slice();
            if let Some(message) = self.take_message() {
                return message;
            }
            tokio::select! {
                biased;
                () = self.rules.changed() => self.begin_placing(),
                () = self.outbox.arrived() => {}
                () = wait(next_slice) => {}
            }
        }
    }

    /// Bytes of memory that the stream has, for the memory budget.
    pub fn bytes(&self) -> usize {
        size_of::<EnvoyStream>() + self.id_bytes + self.buckets.len() * BUCKET_BYTES
    }

    /// The domain of the stream. The first report sets it.
    fn enter_domain(&mut self, sent: &str, now: Micros) -> Result<Arc<str>, ReportError> {
        let metrics = &self.engine.metrics;
        if let Some(domain) = &self.domain {
            // Envoy may leave it out in later reports.
            if sent.is_empty() || sent == &**domain {
                return Ok(domain.clone());
            }
            metrics.refuse(RefusedReason::Domain, domain, now);
            return Err(ReportError::Invalid(
                "a stream has one domain; open another stream for another domain".into(),
            ));
        }
        if let Err(error) = self.engine.config.bounds.check_domain(sent) {
            metrics.refuse(RefusedReason::Domain, sent, now);
            return Err(ReportError::Invalid(format!("the first report: {error}")));
        }
        let domain: Arc<str> = sent.into();
        if let Some(name) = self.name.take() {
            if !self.engine.names.claim(self.client, &domain, &name, now) {
                metrics.refuse(RefusedReason::NameInUse, &domain, now);
                self.domain = Some(domain.clone());
                return Ok(domain);
            }
            self.identity.set_name(&name);
            self.claimed = Some(name.clone());
            self.name = Some(name);
        }
        self.domain = Some(domain.clone());
        Ok(domain)
    }

    /// Counts the use of one bucket.
    fn count(&mut self, at: &ReportScope<'_>, usage: &BucketUsage<'_>) {
        let ReportScope { engine, domain, version, now } = *at;
        let refused = |reason| engine.metrics.refuse(reason, domain, now);
        // The decoder has left out an id with too many pairs.
        let Some(pairs) = &usage.id else { return refused(RefusedReason::LongId) };
        if let Err(error) = check_pairs(pairs, &engine.config.bounds) {
            return refused(error.refused_reason());
        }
        let key = BucketKey::of(&engine.table_seed, pairs);
        let had_requests = usage.allowed > 0 || usage.denied > 0;
        let has_place = match self.buckets.get_mut(&key) {
            None => {
                if !self.add_bucket(at, key, pairs) {
                    return;
                }
                false
            }
            Some(EnvoyBucket { place: BucketPlace::Abandoned, .. }) if !had_requests => return,
            Some(bucket) => {
                if had_requests {
                    bucket.last_demand = now;
                }
                bucket.version == version && !bucket.place.is_abandoned()
            }
        };
        let BucketUsage { allowed, denied, elapsed, .. } = *usage;
        let used = ReportedUse { allowed, denied, elapsed };
        if !(has_place && self.use_bucket(at, key, used)) {
            self.place_bucket(at, key, pairs, Some(used));
        }
        if let Some(rule) = self.buckets.get(&key).and_then(|bucket| bucket.place.rule()) {
            rule.allowed.add_many(allowed);
            rule.denied.add_many(denied);
        }
    }

    /// Abandons the buckets that have had no request for a while, also those that Envoy does not report
    /// any longer.
    fn abandon_idle(&mut self, now: Micros) {
        let engine = &*self.engine;
        let timeout = engine.config.idle_timeout;
        let pause = Micros(timeout.0 / 8).clamp(Micros::SECOND, Micros::from_secs(30));
        if now < self.swept_at.saturating_add(pause) {
            return;
        }
        self.swept_at = now;
        for (key, bucket) in &mut self.buckets {
            let idle = match &bucket.place {
                BucketPlace::Divided { idle, .. } => *idle,
                BucketPlace::AllowAll(_) | BucketPlace::Unassigned(_) => timeout,
                BucketPlace::Abandoned => continue,
            };
            if now.saturating_sub(bucket.last_demand) >= idle {
                let old = std::mem::replace(&mut bucket.place, BucketPlace::Abandoned);
                leave(engine, &old, now);
                let action = QuotaAction::Abandon;
                self.outbox.put(*key, DueAction { action, at: now, ttl_seconds: 0 });
            }
        }
    }

    /// The actions that wait, as one message; `None` without any.
    fn take_message(&mut self) -> Option<Bytes> {
        let engine = self.engine.clone();
        let now = engine.clock.now();
        let (mut message, mut actions) = (Vec::new(), 0);
        while actions < ACTIONS_MAX && message.len() < MESSAGE_BYTES {
            let Some((key, due)) = self.outbox.take() else { break };
            let Some(bucket) = self.buckets.get(&key) else { continue };
            let ttl_seconds = match (due.action, &bucket.place) {
                (QuotaAction::Abandon, BucketPlace::Abandoned) => 0,
                // It was used again.
                (QuotaAction::Abandon, _) | (_, BucketPlace::Abandoned) => continue,
                _ => {
                    let Some(ttl_seconds) = due.ttl_at(now) else {
                        let domain = self.domain.as_deref().unwrap_or_default();
                        engine.metrics.refuse(RefusedReason::LateReader, domain, now);
                        continue;
                    };
                    ttl_seconds
                }
            };
            due.action.encode(&mut message, &bucket.id, ttl_seconds);
            engine.metrics.sent(due.action);
            actions += 1;
            if due.action == QuotaAction::Abandon {
                self.remove_bucket(&engine, key, now);
            }
        }
        (actions > 0).then(|| message.into())
    }

    /// Removes an abandoned bucket.
    fn remove_bucket(&mut self, engine: &QuotaEngine, key: BucketKey, now: Micros) {
        let Some(bucket) = self.buckets.remove(&key) else { return };
        self.id_bytes -= bucket.id.len();
        engine.release_bucket(self.client, true, now);
        if self.buckets.len() < self.buckets.capacity() / 4 {
            self.buckets.shrink_to(2 * self.buckets.len());
        }
    }
}

impl Drop for EnvoyStream {
    fn drop(&mut self) {
        let now = self.engine.clock.now();
        for bucket in self.buckets.values() {
            leave(&self.engine, &bucket.place, now);
            let was_divided = matches!(bucket.place, BucketPlace::Divided { .. });
            self.engine.release_bucket(self.client, was_divided, now);
        }
        if let (Some(domain), Some(name)) = (&self.domain, &self.claimed) {
            self.engine.names.release(self.client, domain, name);
        }
        self.engine.release_stream(self.client);
    }
}
