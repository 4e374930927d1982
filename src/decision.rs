//! Decisions: what the rules and the counters say about one descriptor, and about a whole request.

use crate::time::Micros;

/// The answer of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The hits pass.
    pub allowed: bool,
    /// Index of the tier reported: the one that denied, else the one with the smallest remaining share.
    pub tier: usize,
    /// That tier's limit (requests per window, rate numerator, or slots).
    pub limit: u64,
    /// Hits that tier would still let pass; 0 when denied by a counter that is over its limit.
    pub remaining: u64,
    /// Hits on that tier's counter after this request, also beyond the limit.
    pub used: u64,
    /// Denied: until the same hits would fit. Allowed: until `remaining` next grows (fixed_window: end of the window).
    pub reset_after: Micros,
}
