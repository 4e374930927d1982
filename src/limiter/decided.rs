//! Decided descriptors: each with the reason for its decision.

use super::resolved::ResolvedDescriptor;
use super::rollback_guard::RollbackGuard;
use crate::decision::DecisionReason;

/// One descriptor whose counter has been queried.
pub(super) struct DecidedDescriptor<'q> {
    /// The counter of the descriptor, or the reason why it has none.
    pub(super) resolved: &'q ResolvedDescriptor<'q>,
    /// The reason for its decision.
    pub(super) reason: DecisionReason,
    /// Gives back what the descriptor took under a lease, unless it is disarmed.
    pub(super) rollback: Option<RollbackGuard>,
}
