//! Declares the settings `store.*`.

use std::time::Duration;

use crate::settings::format::{choice, number, positive_duration, switch};
use crate::settings::section::section;

section! {
    /// The counters.
    pub struct StoreSettings {
        /// `memory`: each instance counts for itself. `redis`: all instances share their counters
        /// ([redis.md](../operate/redis.md)). If only `redis.url` is set, the kind is `redis`.
        kind: StoreKind = "memory", choice([
            ("memory", StoreKind::Memory),
            ("redis", StoreKind::Redis),
        ]);
        // 10 ms: half of Envoy's own default timeout.
        /// Longest wait for one reply of Redis. A shorter `grpc-timeout` of the caller, less a
        /// margin, takes precedence.
        timeout: Duration = "10ms", positive_duration();
        /// Maximum number of counters in memory. At the limit, weir evicts the counter whose
        /// eviction loses the least state. With `redis`, these are the counters of
        /// `on_error: local`.
        max_counters: usize = "4000000", number(1..=1_000_000_000);
        /// With `redis`: deny from memory while a counter is known to be over its limit
        /// ([modes.md](../guides/modes.md#over-limit-cache)). `over_limit_cache: false` in an
        /// exact rule switches it off for that rule.
        over_limit_cache: bool = "true", switch();
    }
}

/// The kinds of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Counters of this process.
    Memory,
    /// Counters in Redis, shared by all instances.
    Redis,
}

impl StoreKind {
    /// The name in settings and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            StoreKind::Memory => "memory",
            StoreKind::Redis => "redis",
        }
    }
}
