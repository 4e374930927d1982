//! What weir says about itself: registries of plain atomics, and the pages made of them.
//!
//! A registry counts one subject and writes itself onto an [`Exposition`] with `expose`.

mod compat;
mod decisions;
mod exposition;
mod histogram;
mod lanes;
mod loads;
mod process;
mod requests;
mod series;
mod stats;
mod top;

pub use compat::expose as expose_incumbents;
pub use decisions::Decisions;
pub use exposition::{Distribution, Exposition, Family, Kind, Sample, Value};
pub use histogram::Histogram;
pub use loads::Loads;
pub use process::expose as expose_process;
pub use requests::{Deciding, Requests};
pub use series::{RuleSeries, Slots};
pub use stats::{IncumbentReading, Outcome, Reading};
pub use top::Top;
