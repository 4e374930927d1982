//! Decisions: what the rules and the counters say about one descriptor, and about a whole request.

use crate::time::Micros;

/// The answer of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The hits pass.
    pub allowed: bool,
    /// Index of the tier reported: the one that denied (of several the one that will for longest),
    /// else the one with the smallest remaining share, the first among equals.
    pub tier: usize,
    /// That tier's limit (requests per window, rate numerator, or slots).
    pub limit: u64,
    /// Hits that tier would still let pass; 0 when denied by a counter that is over its limit.
    pub remaining: u64,
    /// Hits on that tier's counter after this request, also beyond the limit (a log remembers one
    /// hit beyond it at most).
    pub used: u64,
    /// Denied: until the same hits would fit; more than the limit: until the counter is empty.
    /// Allowed: until `remaining` next grows; 0 when nothing is used. fixed_window: always until
    /// the window ends.
    pub reset_after: Micros,
}
