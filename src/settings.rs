//! Settings: how this process runs, gathered from a file, the environment and flags.
//!
//! Sources, weakest first: the defaults; envoyproxy/ratelimit's environment variables; `weir.yaml`
//! (`--config`); `WEIR__SECTION__KEY`; flags. envoyproxy/ratelimit's names are weakest because several are
//! generic (`HOST`, `PORT`, `LOG_LEVEL`): a shell or a platform may set them for its own reasons,
//! and that must not beat what somebody wrote down for weir.
//!
//! `raw` holds the texts as written, with every default; this file holds what they mean; `live`
//! joins the two and reports all problems at once.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::descriptor::Bounds;

mod envoy_ratelimit_env;
mod leaf;
mod listeners;
mod otel;
mod parse;
mod problem;
mod raw;
mod reader;
mod redis_url;
mod scalar;
mod secret;
mod serialize;
mod sources;
mod telemetry;
#[cfg(test)]
mod tests;

pub use envoy_ratelimit_env::with_default_runtime_root;
pub use listeners::{Admin, ClientCert, Grpc, Http};
pub use problem::{Problem, Problems};
pub use secret::{Secret, SecretUrl};
pub use sources::{Loaded, Overrides, fields, load, process_env};
pub use telemetry::{Metrics, OtlpHeaders, OtlpProtocol, Tracing};

/// Everything an operator can set. Each field's environment name is `WEIR__SECTION__KEY`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// The gRPC listener that proxies ask.
    pub grpc: Grpc,
    /// The HTTP listener: `/json` and health.
    pub http: Http,
    /// The admin listener: metrics, rules, settings.
    pub admin: Admin,
    /// Where rules come from and how they are read.
    pub rules: Rules,
    /// What goes into answers.
    pub answer: Answer,
    /// Where counters live.
    pub store: Store,
    /// How Redis is reached, when `store.kind` is redis.
    pub redis: Redis,
    /// How large one request may be.
    #[serde(with = "serialize::bounds")]
    pub bounds: Bounds,
    /// What decides when the store cannot.
    pub fallback: Fallback,
    /// What readiness means.
    pub readyz: Readyz,
    /// How the process ends.
    pub drain: Drain,
    /// What the time is.
    pub clock: Clock,
    /// What is logged.
    pub log: Log,
    /// What is counted for operators.
    pub metrics: Metrics,
    /// What is traced.
    pub tracing: Tracing,
}

/// Where rules come from and how they are read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// Files and folders, relative to the working directory. Default `[rules/]`.
    /// `WEIR__RULES__PATHS` (separated by commas), `RUNTIME_ROOT` with `RUNTIME_SUBDIRECTORY` and
    /// `RUNTIME_APPDIRECTORY`.
    pub paths: Vec<PathBuf>,
    /// Several files may define one domain. Default false. `WEIR__RULES__MERGE_DOMAINS`,
    /// `MERGE_DOMAIN_CONFIG`.
    pub merge_domains: bool,
    /// What an unknown or misplaced field is. Default error. `WEIR__RULES__UNKNOWN_FIELDS`.
    pub unknown_fields: UnknownFields,
    /// Start although the first load failed, and let everything pass until the files are mended.
    /// Default false. `WEIR__RULES__START_WITHOUT`, `FORCE_START_WITHOUT_INITIAL_CONFIG`.
    pub start_without: bool,
    /// Reload on changes, and not on SIGHUP alone. Default true. `WEIR__RULES__WATCH`.
    pub watch: bool,
    /// What a denied request does to its other descriptors' counters, for domains that do not say.
    /// Default count. `WEIR__RULES__DENIED_REQUESTS`, `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT`.
    pub denied_requests: DeniedRequests,
}

/// What an unknown or misplaced field in a rule file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownFields {
    /// The file is refused.
    Error,
    /// The field is ignored, with a warning.
    Warn,
}

/// What a denied request does to the counters of its other descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeniedRequests {
    /// They keep the hits.
    Count,
    /// They give the hits back.
    Free,
}

/// What goes into answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Rate-limit headers. Default off. `WEIR__ANSWER__HEADERS`.
    pub headers: Headers,
    /// Every denial is sent as OK. Default false. `WEIR__ANSWER__SHADOW_MODE`, `SHADOW_MODE`.
    pub shadow_mode: bool,
    /// Every limited descriptor is a quota descriptor: only all of them together deny.
    /// Default false. `WEIR__ANSWER__QUOTA_MODE`, `QUOTA_MODE`.
    pub quota_mode: bool,
    /// Answers carry dynamic metadata. Default false. `WEIR__ANSWER__DYNAMIC_METADATA`,
    /// `RESPONSE_DYNAMIC_METADATA`.
    pub dynamic_metadata: bool,
    /// Answers carry `x-weir-decision`, which says how they came about. Default false.
    /// `WEIR__ANSWER__DECISION_HEADER`.
    pub decision_header: bool,
    /// envoyproxy/ratelimit's three headers, beside those of `headers`. Default false.
    /// `WEIR__ANSWER__ENVOY_RATELIMIT_HEADERS`, `LIMIT_RESPONSE_HEADERS_ENABLED`.
    pub envoy_ratelimit_headers: bool,
    /// Name of the first of the three. Default `RateLimit-Limit`. `WEIR__ANSWER__LIMIT_HEADER`,
    /// `LIMIT_LIMIT_HEADER`.
    pub limit_header: String,
    /// Name of the second. Default `RateLimit-Remaining`. `WEIR__ANSWER__REMAINING_HEADER`,
    /// `LIMIT_REMAINING_HEADER`.
    pub remaining_header: String,
    /// Name of the third. Default `RateLimit-Reset`. `WEIR__ANSWER__RESET_HEADER`,
    /// `LIMIT_RESET_HEADER`.
    pub reset_header: String,
}

/// Which rate-limit headers an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Headers {
    /// None. Also written `false` or `none`.
    Off,
    /// `x-ratelimit-limit`, `-remaining`, `-reset`, in Envoy's form.
    XRatelimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF's draft 11.
    Ietf,
    /// Both.
    Both,
}

/// Where counters live.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Store {
    /// Default memory. `WEIR__STORE__KIND`.
    pub kind: StoreKind,
    /// Longest wait for one decision of a store that can make one wait. Default 10ms, half of
    /// Envoy's own default. `WEIR__STORE__TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub timeout: Duration,
    /// Counters the memory store keeps before it evicts. Default 4000000.
    /// `WEIR__STORE__MAX_COUNTERS`.
    pub max_counters: usize,
    /// Counters in Redis that are known to be full are denied from memory. Default true.
    /// `WEIR__STORE__OVER_LIMIT_CACHE`.
    pub over_limit_cache: bool,
}

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Counters of this process.
    Memory,
    /// Counters in Redis, shared by all instances.
    Redis,
}

/// How Redis is reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Redis {
    /// Default `redis-cluster://127.0.0.1:7000`. `WEIR__REDIS__URL`, `REDIS_URL` with `REDIS_TYPE`,
    /// `REDIS_AUTH`, `REDIS_TLS` and `REDIS_SENTINEL_AUTH`. Printed without its password.
    pub url: SecretUrl,
    /// Connections per node, spread over the cores; each core has at least one. Default 1.
    /// `WEIR__REDIS__POOL_SIZE`, `REDIS_POOL_SIZE`.
    pub pool_size: usize,
    /// The most decisions that share one call of a script; 1 sends each alone. Default 128.
    /// `WEIR__REDIS__BATCH`.
    pub batch: usize,
    /// A name of Redis's access control list, instead of the URL's. Default none.
    /// `WEIR__REDIS__USERNAME`.
    #[serde(with = "serialize::optional")]
    pub username: Option<String>,
    /// A file whose first line is the password, instead of the URL's; read for every new
    /// connection. Default none. `WEIR__REDIS__PASSWORD_FILE`.
    #[serde(with = "serialize::optional")]
    pub password_file: Option<PathBuf>,
    /// What the names of counters are hashed with; the same for all instances that share them.
    /// Default none, which is the same for everybody. `WEIR__REDIS__KEY_SECRET`. Never printed.
    #[serde(with = "serialize::optional")]
    pub key_secret: Option<Secret>,
    /// Certificates of the authorities to trust with `rediss`; default the system's.
    /// `WEIR__REDIS__TLS_CA`, `REDIS_TLS_CACERT`.
    #[serde(with = "serialize::optional")]
    pub tls_ca: Option<PathBuf>,
    /// Our certificate chain, for servers that want one. Default none. `WEIR__REDIS__TLS_CERT`,
    /// `REDIS_TLS_CLIENT_CERT`.
    #[serde(with = "serialize::optional")]
    pub tls_cert: Option<PathBuf>,
    /// Its key. Default none. `WEIR__REDIS__TLS_KEY`, `REDIS_TLS_CLIENT_KEY`.
    #[serde(with = "serialize::optional")]
    pub tls_key: Option<PathBuf>,
    /// The server's certificate need not name its host. Default false.
    /// `WEIR__REDIS__TLS_SKIP_HOSTNAME_CHECK`, `REDIS_TLS_SKIP_HOSTNAME_VERIFICATION`.
    pub tls_skip_hostname_check: bool,
}

/// What decides when the store cannot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fallback {
    /// For rules that do not say. Default allow. `WEIR__FALLBACK__ON_ERROR`.
    pub on_error: OnError,
    /// Instances that share the traffic: with `local`, each lets through its part of a limit.
    /// Default 1. `WEIR__FALLBACK__INSTANCES`.
    pub instances: u64,
}

/// A decision without a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The request passes.
    Allow,
    /// The request is denied.
    Deny,
    /// This instance's own counters decide, with its part of the limit.
    Local,
}

/// What readiness means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Readyz {
    /// `/readyz` fails while the store cannot be reached. Default false.
    /// `WEIR__READYZ__REQUIRE_STORE`.
    pub require_store: bool,
    /// `/readyz` fails without rules. Default off. `WEIR__READYZ__REQUIRE_RULES`,
    /// `HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED`.
    pub require_rules: RequireRules,
}

/// Without which rules the process is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequireRules {
    /// Ready with any rules or none. Also written `false`.
    Off,
    /// At least one domain must be defined by the rules in force.
    Loaded,
    /// That, and the files as they are must be the rules in force: a bad reload fails readiness.
    Current,
}

/// How the process ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drain {
    /// Time between failing readiness and refusing connections, for load balancers to notice.
    /// Default 5s. `WEIR__DRAIN__DELAY`.
    #[serde(with = "serialize::duration")]
    pub delay: Duration,
    /// Time that requests in flight get after that. Default 30s. `WEIR__DRAIN__TIMEOUT`.
    #[serde(with = "serialize::duration")]
    pub timeout: Duration,
}

/// What the time is. For tests of instances whose machines' clocks are wrong, and nothing else.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clock {
    /// Added to the machine's clock, in microseconds. Default 0s. `WEIR__CLOCK__OFFSET`.
    #[serde(with = "serialize::signed_duration")]
    pub offset: i64,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Log {
    /// off, error, warn, info, debug or trace, also per module: `warn,weir::rules=debug`.
    /// Default info. `WEIR__LOG__LEVEL`, `LOG_LEVEL`.
    pub level: String,
    /// Default pretty. `WEIR__LOG__FORMAT`, `LOG_FORMAT`.
    pub format: LogFormat,
}

/// What a line of the log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object per line.
    Json,
}

impl Default for Settings {
    fn default() -> Settings {
        parse::parse(&raw::Raw::default(), &leaf::Origins::default())
            .expect("the defaults are valid: the tests build them")
    }
}

impl Settings {
    /// Small and quick: loopback listeners on ports the system picks, one core, no drain delay.
    pub fn for_testing() -> Settings {
        let mut settings = Settings::default();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.grpc.listen = any_port;
        settings.http.listen = any_port;
        settings.admin.listen = any_port;
        settings.grpc.cores = Some(NonZeroUsize::MIN);
        settings.store.max_counters = 10_000;
        settings.drain.delay = Duration::ZERO;
        settings.drain.timeout = Duration::from_secs(1);
        settings
    }

    /// The settings in the shape of `weir.yaml`, passwords masked: what `/settings` shows.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("texts, numbers and lists have a JSON form")
    }
}
