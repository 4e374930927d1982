//! The settings of the process, read from a file, the environment and flags.
//!
//! A later source overrides an earlier one:
//!
//! 1. The defaults.
//! 2. Environment variables of envoyproxy/ratelimit.
//! 3. Environment variables of OpenTelemetry.
//! 4. `weir.yaml` (`--config`).
//! 5. Environment variables named `WEIR__SECTION__NAME`.
//! 6. Flags.
//!
//! The variables of other programs come before the file, because several of them are generic
//! (`HOST`, `PORT`, `LOG_LEVEL`). A shell or a platform may set them for other reasons.
//!
//! Every setting is declared once, in [`sections`]. The head of `section.rs` lists what the
//! declaration generates. `sources` collects texts by name, `reader` parses them, and `combinations`
//! checks them against each other. All problems are reported at once. The files that settings name are
//! read by their users; `app::check_files` lists the problems of all of them.

use std::collections::BTreeMap;

use crate::descriptor::RequestBounds;

mod combinations;
mod envoy_ratelimit_env;
mod format;
#[cfg(feature = "fuzz")]
mod fuzz_harness;
mod otel_env;
mod otlp;
mod problem;
mod reader;
mod redis_address;
mod redis_url;
mod scalar;
mod secret;
mod section;
mod sections;
mod source_values;
mod sources;
#[cfg(test)]
mod tests;

pub use envoy_ratelimit_env::{with_default_runtime_root, without_host};
#[cfg(feature = "fuzz")]
pub use fuzz_harness::load_bytes;
pub use otlp::{OtlpHeaders, OtlpProtocol};
pub use problem::{Problem, Problems};
pub use redis_url::{HostPort, RedisServers, RedisUrl};
pub use secret::{Secret, SecretUrl};
pub use section::Setting;
pub use sections::{
    AdminSettings, ClientCert, ClockSettings, DecisionLogSettings, DrainSettings, FallbackSettings,
    FunctionChoice, GrpcSettings, HttpSettings, LimitHeaders, LineValues, LogFormat, LogSettings,
    LoggedRequests, LoggedValues, MetricsSettings, PlanSourceKind, PlansSettings, ReadyzSettings,
    RedisSettings, RequireRules, ResponseSettings, RlqsSettings, RulesSettings, StoreKind,
    StoreSettings, TracingSettings, UsageSettings, XdsSettings,
};
pub use sources::{Flags, Loaded, load, process_env};

use reader::{Reader, WrittenText};
use section::{SettingsSection, settings};

settings! {
    /// The gRPC listener.
    grpc: GrpcSettings,
    /// The HTTP listener.
    http: HttpSettings,
    /// The admin listener.
    admin: AdminSettings,
    /// The source of rules.
    rules: RulesSettings,
    /// The server that sends rules by xDS.
    xds = "rules.xds": XdsSettings,
    /// The content of responses.
    response: ResponseSettings,
    /// The counters.
    store: StoreSettings,
    /// The connection to Redis.
    redis: RedisSettings,
    /// The largest request.
    request: RequestBounds,
    /// Limits that are divided among Envoys.
    rlqs: RlqsSettings,
    /// Numbers of limits by customer.
    plans: PlansSettings,
    /// The names of counters, for listings.
    usage: UsageSettings,
    /// Decisions while the store fails.
    fallback: FallbackSettings,
    /// The conditions of readiness.
    readyz: ReadyzSettings,
    /// Graceful shutdown.
    drain: DrainSettings,
    /// The clock.
    clock: ClockSettings,
    /// The log.
    log: LogSettings,
    /// The log of decisions.
    decisions = "log.decisions": DecisionLogSettings,
    /// The metrics.
    metrics: MetricsSettings,
    /// The traces.
    tracing: TracingSettings,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::read(&mut Reader::default())
    }
}

impl Settings {
    /// Parses the texts in `written`. A setting without a text has its default.
    fn parse(written: &BTreeMap<String, WrittenText>) -> Result<Settings, Problems> {
        let mut reader = Reader::new(written);
        let settings = Settings::read(&mut reader);
        reader.problems.extend(combinations::problems(&settings, written));
        if reader.problems.is_empty() { Ok(settings) } else { Err(Problems(reader.problems)) }
    }

    /// Settings for tests: loopback listeners on free ports, one gRPC worker, few counters, no drain
    /// delay.
    #[cfg(test)]
    pub(crate) fn for_testing() -> Settings {
        use std::net::SocketAddr;
        use std::num::NonZeroUsize;
        use std::time::Duration;

        let mut settings = Settings::default();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.grpc.listen = any_port;
        settings.http.listen = any_port;
        settings.admin.listen = any_port;
        settings.grpc.workers = Some(NonZeroUsize::MIN);
        settings.store.max_counters = 10_000;
        settings.drain.delay = Duration::ZERO;
        settings.drain.timeout = Duration::from_secs(1);
        settings
    }
}
