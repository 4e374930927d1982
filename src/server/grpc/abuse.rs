//! Abuse of HTTP/2: limits on frames and resets that cost work without a decision, and a bound on the
//! input that headers keep in memory.

pub(super) mod control_frames;
mod header_table;
pub(super) mod premature_resets;
