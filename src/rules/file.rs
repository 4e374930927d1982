//! Reads rule files from disk: their fields as written, and the problems with them.

mod fields;
pub(super) mod model;
pub(super) mod options;
pub(super) mod problem;
pub(super) mod raw_calendar;
pub(super) mod raw_cost;
pub(super) mod raw_limit_from;
pub(super) mod raw_overlay;
pub(super) mod reader;
mod scalar;
mod shadow;
pub(super) mod source;
