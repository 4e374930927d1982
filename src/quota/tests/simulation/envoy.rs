//! A simulated Envoy: its process, its stream and its buckets.

use std::collections::BTreeMap;

use crate::testing::simulated_bucket::SimBucket;
use crate::time::Micros;

/// One Envoy.
#[derive(Debug)]
pub(super) struct SimEnvoy {
    /// Its address.
    pub(super) client: u64,
    /// The name that it sends, so that its shares follow it.
    pub(super) name: Option<u64>,
    /// The instance whose local callers it stands for.
    pub(super) home: Option<usize>,
    /// Counts processes.
    pub(super) epoch: u64,
    /// When its timer fires, within the report interval.
    pub(super) phase: Micros,
    /// Its stream, if it has one.
    pub(super) stream: Option<usize>,
    /// By quota.
    pub(super) buckets: BTreeMap<usize, SimBucket>,
}
