//! weir: a rate-limit decision service that speaks Envoy's protocol and always answers.

pub mod algorithm;
pub mod app;
pub mod cli;
pub mod decision;
pub mod descriptor;
pub mod key;
pub mod limit;
pub mod limiter;
pub mod proto;
pub mod rules;
pub mod server;
pub mod settings;
pub mod step;
pub mod store;
pub mod telemetry;
pub mod time;
