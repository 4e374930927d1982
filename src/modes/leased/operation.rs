//! Operations of a credit pool on its counter: refills and returns. A pool has one in flight at a
//! time.

use std::sync::Arc;

use super::leased_limit::{CreditBatch, LeasedLimit};
use crate::step::Step;

/// A step that draws or returns credits.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// The limit under which the step was planned.
    pub(super) limit: Arc<LeasedLimit>,
    /// The pool's epoch when it was planned, see `CreditPool::delete`.
    pub(super) epoch: u64,
    pub(super) step: Step,
    pub(super) kind: OperationKind,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    /// Draws credits, ahead of need or for waiting requests.
    Refill,
    /// Returns the credits of a window, which have left the pool.
    Return,
    /// Returns the last span of a bucket. The pool keeps it until the outcome shows that it was
    /// returned.
    ReturnSpan,
}

/// Credits of a window that left the pool, with the limit they were drawn under.
pub(super) type PendingReturn = (Arc<LeasedLimit>, CreditBatch);
