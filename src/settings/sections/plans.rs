//! Declares the settings `plans.*`.

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::format::{choice, file, number, optional, positive_duration, url};
use crate::settings::scalar::web_url;
use crate::settings::secret::SecretUrl;
use crate::settings::section::section;

section! {
    /// Plans: numbers of limits by customer, for rules with `limit_from` ([plans.md](../guides/plans.md)).
    pub struct PlansSettings {
        /// Source of plans and customers: `file` (`plans.file`), `redis` (with `store.kind: redis`, in
        /// the same Redis), or `http` (`plans.url`). `none`: rules decide by their own numbers.
        source: PlanSourceKind = "none", choice([
            ("none", PlanSourceKind::None),
            ("file", PlanSourceKind::File),
            ("redis", PlanSourceKind::Redis),
            ("http", PlanSourceKind::Http),
        ]);
        /// With `source: file`: YAML file of plans, of at most 16 MiB. weir reads it again when it
        /// changes.
        file: Option<PathBuf> = "", optional(file());
        /// With `source: file`: file of customers, one line `customer,plan` each. It may have millions.
        /// weir reads it again when it changes.
        customers_file: Option<PathBuf> = "", optional(file());
        /// Maximum number of customers. A source with more is refused, and the last customers stay. With
        /// `source: redis`, at most as many are in memory, and those that requests name stay. Each takes
        /// at most 11 bytes, and twice that while all are replaced.
        max_customers: usize = "1000000", number(1..=100_000_000);
        /// With `source: redis`: most customers per second whose plans this process looks up because
        /// requests name them for the first time. Five times as many may come at once. Over it, the
        /// default decides for such customers.
        max_lookups: u32 = "10000", number(1..=1_000_000);
        /// With `source: redis` or `http`: time between two looks for changes.
        poll_interval: Duration = "500ms", positive_duration();
        /// With `source: http`: address from which weir gets plans and customers, as YAML or JSON.
        url: Option<SecretUrl> = "", optional(url("a URL", web_url));
        /// With `source: http`: timeout of a response, with its body. With `redis`: timeout of each
        /// command, except that `store.timeout` bounds those that a request waits for. weir waits at
        /// most this long for the plans before it listens.
        timeout: Duration = "1s", positive_duration();
        /// With `source: http`: largest body of a response, in bytes.
        max_bytes: usize = "67108864", number(1024..=1 << 30);
        /// With `source: http`: file whose first line is the bearer token for `plans.url`. weir reads
        /// it for every request.
        token_file: Option<PathBuf> = "", optional(file());
        /// With `source: http`: certificates of authorities to trust besides those of the system, PEM.
        /// weir reads the file for every new connection.
        ca_file: Option<PathBuf> = "", optional(file());
    }
}

/// The kinds of source of plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanSourceKind {
    /// There are no plans.
    None,
    /// Files on this machine.
    File,
    /// The Redis that has the counters.
    Redis,
    /// A server.
    Http,
}

impl PlanSourceKind {
    /// The name in settings and on pages.
    pub const fn name(self) -> &'static str {
        match self {
            PlanSourceKind::None => "none",
            PlanSourceKind::File => "file",
            PlanSourceKind::Redis => "redis",
            PlanSourceKind::Http => "http",
        }
    }
}
