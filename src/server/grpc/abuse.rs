//! Abuse of HTTP/2: limits on frames and resets that make work and bring no decisions.

pub(super) mod control_frames;
pub(super) mod premature_resets;
