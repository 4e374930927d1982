//! Declares the settings `usage.*`.

use crate::settings::format::number;
use crate::settings::section::section;

section! {
    /// The names of counters of rules with `usage: true` ([usage.md](../guides/usage.md)).
    pub struct UsageSettings {
        /// Maximum number of names in the memory of this process. On average a name may have 128 bytes
        /// of text. At the limit, weir evicts names that were not used recently. With `store.kind:
        /// redis` it is also the maximum number of names of each rule in Redis.
        max_names: usize = "1000000", number(1..=1_000_000_000);
        /// With `store.kind: redis`: maximum number of commands that read names for one request to
        /// `/usage`. The names of a rule are in 128 sets, and one command reads at most 500 names of
        /// one set. The next page continues.
        scan_pages: usize = "256", number(1..=100_000);
    }
}
