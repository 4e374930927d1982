//! The sections of `weir.yaml`: one declaration per setting.

mod answer;
mod grpc;
mod http;
mod metrics;
mod process;
mod redis;
mod rules;
mod store;
mod tracing;

pub use answer::{AnswerSettings, LimitHeaders};
pub use grpc::{ClientCert, GrpcSettings};
pub use http::{AdminSettings, HttpSettings};
pub use metrics::MetricsSettings;
pub use process::{
    ClockSettings, DrainSettings, LogFormat, LogSettings, ReadyzSettings, RequireRules,
};
pub use redis::RedisSettings;
pub use rules::RulesSettings;
pub use store::{FallbackSettings, StoreKind, StoreSettings};
pub use tracing::TracingSettings;
