//! Metrics, traces and the log of fallbacks.
//!
//! A registry counts one subject in atomics. Its function `expose` writes its metrics onto an
//! [`Exposition`].

mod activity;
mod client_named_series;
mod decisions;
mod envoy_ratelimit;
mod exposition;
mod fallback_log;
mod history;
mod limits;
mod otlp;
mod outcomes;
mod process;
mod reloads;
mod requests;
mod resource;
mod rule_metrics;
mod top;
mod trace;
mod what_if;

pub use activity::{ActiveSeries, ActivityReader, DecisionRates, LiveSample};
pub use decisions::Decisions;
pub use envoy_ratelimit::expose as expose_envoy_ratelimit;
pub use exposition::{Exposition, Family, FamilyKind, Sample, SampleValue};
pub use history::{RuleHistory, RuleRates, TICK, TICKS};
pub use limits::expose as expose_limits;
pub use otlp::{Exporter, OtlpError, check_collectors, start_metrics_export};
pub use outcomes::{DecisionOutcome, EnvoyRatelimitSnapshot, OutcomeSnapshot};
pub use process::expose as expose_process;
pub use reloads::RuleReloads;
pub use requests::{InFlightRequest, Requests};
pub use rule_metrics::{RuleMetrics, RuleSeries, SeriesBudget};
pub use top::{LimitedCounter, TopDenied};
pub use trace::{RequestSpan, Traces};
