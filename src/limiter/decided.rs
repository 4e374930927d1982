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
    /// Whether the rule is divided, so that the share of this instance decided.
    pub(super) by_share: bool,
    /// Whether the counter allowed hits that are charged to the share of this instance.
    pub(super) owes_share: bool,
    /// Gives back what the descriptor took under a lease, unless it is disarmed.
    pub(super) rollback: Option<RollbackGuard>,
}
