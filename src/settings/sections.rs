//! The sections of `weir.yaml`: one declaration per setting.

mod admin;
mod clock;
mod drain;
mod fallback;
mod grpc;
mod http;
mod log;
mod metrics;
mod plans;
mod readyz;
mod redis;
mod request;
mod response;
mod rlqs;
mod rules;
mod store;
mod tracing;
mod xds;

pub use admin::AdminSettings;
pub use clock::ClockSettings;
pub use drain::DrainSettings;
pub use fallback::FallbackSettings;
pub use grpc::{ClientCert, GrpcSettings};
pub use http::HttpSettings;
pub use log::{LogFormat, LogSettings};
pub use metrics::MetricsSettings;
pub use plans::{PlanSourceKind, PlansSettings};
pub use readyz::{ReadyzSettings, RequireRules};
pub use redis::{FunctionChoice, RedisSettings};
pub use response::{LimitHeaders, ResponseSettings};
pub use rlqs::RlqsSettings;
pub use rules::RulesSettings;
pub use store::{StoreKind, StoreSettings};
pub use tracing::TracingSettings;
pub use xds::XdsSettings;
