//! A member of a quota: a holder of this process, its demand, and where its assignments go.

use std::sync::Arc;

use super::bucket_id::BucketKey;
use super::outbox::{DueAction, Outbox};
use super::quota_action::QuotaAction;
use super::tokens::Tokens;
use crate::time::Micros;

/// A holder of this process.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) to: Recipient,
    /// The last report, by the local clock; `None` before the first one.
    pub(super) last_report: Option<Micros>,
    /// Hits per second between the last two reports.
    pub(super) demand: f64,
    /// For a rule in shadow mode: the bucket that the Envoy would have.
    pub(super) shadow: Option<Box<Tokens>>,
}

/// How long a bucket may still pass everything after its rule left shadow mode, if it has no share. Envoy
/// ends an assignment by its time to live, in whole seconds.
const ENDING: Micros = Micros::SECOND;

impl Member {
    /// Ends what [`allow_all`](Member::allow_all) sent. What Envoy has for expired assignments decides then.
    pub(super) fn end_allow_all(&self, now: Micros) {
        self.allow_all(now, ENDING);
    }

    /// Lets a bucket pass everything for `ttl`. Callers of this process need no message.
    pub(super) fn allow_all(&self, now: Micros, ttl: Micros) {
        if let Recipient::Bucket { outbox, bucket, .. } = &self.to {
            let (action, ttl_seconds) = (QuotaAction::ALLOW_ALL, ttl.0 / Micros::SECOND.0);
            outbox.put(*bucket, DueAction { action, at: now, ttl_seconds });
        }
    }
}

/// Who uses the share of a member.
#[derive(Clone, Debug)]
pub(super) enum Recipient {
    /// A bucket of an Envoy's stream.
    Bucket {
        outbox: Arc<Outbox>,
        bucket: BucketKey,
        /// The instance name, if the Envoy sent one.
        name: Option<Arc<str>>,
    },
    /// Callers of this process.
    Local,
}
