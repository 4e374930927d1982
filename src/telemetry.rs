//! What weir says about itself: registries of plain atomics, and the pages made of them.
//!
//! A registry counts one subject and writes itself onto an [`Exposition`] with `expose`.

mod compat;
mod decisions;
mod exposition;
mod histogram;
mod lanes;
mod loads;
mod otlp;
mod process;
mod push;
mod requests;
mod series;
mod service;
mod stats;
mod top;
mod trace;

pub use compat::expose as expose_envoy_ratelimit;
pub use decisions::Decisions;
pub use exposition::{Distribution, Exposition, Family, Kind, Sample, Value};
pub use histogram::Histogram;
pub use loads::Loads;
pub use otlp::{Destination, Exporter, OtlpError};
pub use process::expose as expose_process;
pub use push::{PushOptions, push};
pub use requests::{Deciding, Requests};
pub use series::{RuleSeries, Slots};
pub use service::Service;
pub use stats::{EnvoyRatelimitReading, Outcome, Reading};
pub use top::Top;
pub use trace::{RequestSpan, TraceOptions, Traces};
