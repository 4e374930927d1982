//! Declares the settings `store.*`, `fallback.*` and `bounds.*`.

use std::time::Duration;

use crate::descriptor::Bounds;
use crate::limit::OnError;
use crate::settings::format::{choice, number, positive_duration, switch};
use crate::settings::section::section;

section! {
    /// The counters.
    pub struct StoreSettings {
        /// `memory`: each instance counts for itself. `redis`: all instances share their counters
        /// ([redis.md](redis.md)).
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
        /// ([modes.md](modes.md#over-limit-cache)). `over_limit_cache: false` in a rule switches it
        /// off for that rule.
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

section! {
    /// Decisions while the store fails.
    pub struct FallbackSettings {
        /// Decision about a request that the store cannot count: `allow`, `deny`, or `local`, which
        /// uses counters of this instance. `on_error` in a rule takes precedence.
        on_error: OnError = "allow", choice(OnError::ALL.map(|choice| (choice.name(), choice)));
        /// Number of instances that share the traffic. With `on_error: local`, each of them allows
        /// its share of a limit, rounded up.
        instances: u64 = "1", number(1..=1_000_000);
    }
}

// The upper ends keep one request cheap, whatever an operator writes.
section! {
    /// The largest request. A request over a bound gets INVALID_ARGUMENT.
    impl Bounds {
        /// Maximum number of descriptors in one request.
        descriptors: usize = "256", number(1..=10_000);
        /// Maximum number of entries in one descriptor.
        entries: usize = "32", number(1..=1_000);
        /// Maximum number of bytes of the domain, of a key, or of a value.
        text_bytes: usize = "65536", number(1..=1 << 20);
    }
}
