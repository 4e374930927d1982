//! The sections of `weir.yaml`: one declaration per setting.

mod grpc;
mod http;
mod metrics;
mod process;
mod redis;
mod response;
mod rules;
mod store;
mod tracing;

pub use grpc::{ClientCert, GrpcSettings};
pub use http::{AdminSettings, HttpSettings};
pub use metrics::MetricsSettings;
pub use process::{
    ClockSettings, DrainSettings, LogFormat, LogSettings, ReadyzSettings, RequireRules,
};
pub use redis::RedisSettings;
pub use response::{LimitHeaders, ResponseSettings};
pub use rules::RulesSettings;
pub use store::{FallbackSettings, StoreKind, StoreSettings};
pub use tracing::TracingSettings;
