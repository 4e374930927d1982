//! What weir says about itself: decisions per rule, as plain atomics that exporters read.

mod decisions;
mod exposition;

pub use decisions::{Decisions, RuleStats, Slots};
pub use exposition::Exposition;
