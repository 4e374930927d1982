//! Declares the settings `redis.*`.

use std::path::PathBuf;

use crate::settings::format::{choice, file, number, optional, secret, switch, text, url};
use crate::settings::redis_url::RedisUrl;
use crate::settings::secret::Secret;
use crate::settings::section::section;

section! {
    /// The connection to Redis, with `store.kind: redis`.
    pub struct RedisSettings {
        /// Address of Redis; [redis.md](../operate/redis.md) lists every form. Without `store.kind`, it also
        /// selects the redis store. Shown without its password.
        url: RedisUrl = "redis-cluster://127.0.0.1:7000", url("a URL", RedisUrl::parse);
        /// Minimum connections per node, over all gRPC workers. Each worker has at least one, so
        /// values below the number of workers have no effect.
        min_connections_per_node: usize = "1", number(1..=1024);
        /// Maximum number of steps in one script call. A step is one operation on one counter,
        /// usually a decision. 1 sends each step alone.
        max_batch_size: usize = "128", number(1..=1024);
        /// How Redis runs steps. `auto`: by functions of weir's library, which cost less, on nodes
        /// where weir may load and call them, and by scripts on the others. `off` (also `false`): by
        /// scripts.
        functions: FunctionChoice = "auto", choice([
            ("auto", FunctionChoice::Auto),
            ("off", FunctionChoice::Off),
            ("false", FunctionChoice::Off),
        ]);
        /// User of Redis's access control list, instead of the URL's.
        username: Option<String> = "", optional(text());
        /// File whose first line is the password, instead of the URL's. weir reads it for every new
        /// connection.
        password_file: Option<PathBuf> = "", optional(file());
        // Empty is the same everywhere: instances that disagree would each allow the whole limit.
        /// Secret that hashes the names of counters. All instances that share counters need the
        /// same. Never shown.
        key_secret: Option<Secret> = "", optional(secret());
        /// Certificates of the authorities to trust with `rediss`, PEM. Empty: the system's. weir
        /// reads the file for every new connection.
        tls_ca: Option<PathBuf> = "", optional(file());
        /// Certificate chain of the client, PEM, for servers that require one. weir reads the file
        /// for every new connection.
        tls_cert: Option<PathBuf> = "", optional(file());
        /// Private key of `tls_cert`.
        tls_key: Option<PathBuf> = "", optional(file());
        /// Accept a server certificate for another host. Its chain is still verified.
        tls_skip_hostname_check: bool = "false", switch();
    }
}

/// Whether Redis may run functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FunctionChoice {
    /// Where the node has them and the user may use them.
    #[default]
    Auto,
    /// Nowhere.
    Off,
}
