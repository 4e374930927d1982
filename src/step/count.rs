//! Count: how many hits fell into the present window. The state machine of fixed_window.

use crate::time::Micros;

/// The numbers of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountTier {
    /// Start of the window that the step's instant falls into.
    pub start: Micros,
    /// End of that window.
    pub end: Micros,
    /// Hits that pass per window.
    pub max: u64,
}

/// The state of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Start of the window that was counted.
    pub start: Micros,
    /// Hits in it.
    pub count: u64,
}
