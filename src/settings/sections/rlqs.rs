//! Declares the settings `rlqs.*`.

use std::time::Duration;

use crate::settings::format::{
    COUNT_MAX, entry_keys, number, positive_duration, switch, whole_seconds,
};
use crate::settings::section::section;

/// The shortest `rlqs.assignment_ttl`, in seconds: two reports of Envoy, which come every 5 s.
const ASSIGNMENT_TTL_MIN: u64 = 10;

section! {
    /// The rate limit quota service (RLQS), which divides limits among Envoys ([rlqs.md](../guides/rlqs.md)).
    pub struct RlqsSettings {
        /// Whether the gRPC listener serves RLQS. `false`: its calls get UNIMPLEMENTED.
        enabled: bool = "true", switch();
        // 12 s: two reports of Envoy, and 2 s for a report that is late.
        /// Time for which an assignment is valid. Each report of an Envoy renews it. The share of an
        /// Envoy that is lost is free again a second after this time.
        assignment_ttl: Duration = "12s", whole_seconds(ASSIGNMENT_TTL_MIN);
        /// Time without a request after which weir abandons a bucket, or the time in which its burst
        /// refills, if that is longer. The next request creates it again.
        idle_timeout: Duration = "10m", positive_duration();
        /// Keys of a bucket id that come first in its descriptor, in this order: `name,name`. The
        /// other keys follow in the order of their bytes.
        key_order: Vec<String> = "", entry_keys();
        /// Hits that all Envoys of a limit together may have saved up, as a percentage of the requests
        /// of its window. The algorithms token_bucket and leaky_bucket have their own `burst`.
        burst_percent: u64 = "20", number(0..=100);
        /// With `store.kind: memory`: after a start, assign to an Envoy at most what it used before,
        /// until the assignments of the process before have expired. `false`: assign at once, so that
        /// a limit may be exceeded after a restart.
        relearn: bool = "true", switch();
        /// Maximum number of open streams. One client address gets at most half of them. Further streams
        /// get RESOURCE_EXHAUSTED.
        max_streams: usize = "10000", number(1..=COUNT_MAX);
        /// Maximum number of buckets of one stream. Further buckets get no assignment.
        max_buckets_per_stream: usize = "10000", number(1..=COUNT_MAX);
        /// Maximum number of buckets of all streams, with those of streams that ended in the last
        /// `rlqs.assignment_ttl`. One client address gets at most half of them. Further buckets get no
        /// assignment. It is also the maximum number of shares for callers of `ShouldRateLimit`; without
        /// one, the counter decides. Each takes at most 4 KiB.
        max_buckets: usize = "40000", number(1..=100_000_000);
        /// Largest report, in bytes. A larger one ends its stream.
        max_message_bytes: usize = "1048576", number(1024..=1 << 26);
    }
}
