//! The resolution of a descriptor: a query to one counter, or a reason why nothing is counted.

use std::borrow::Cow;

use crate::decision::Cause;
use crate::key::Key;
use crate::limit::Limit;
use crate::rules::Rule;
use crate::step::LeaseId;

/// The resolution of one descriptor.
pub(super) enum Resolved<'r> {
    /// Nothing is counted.
    Uncounted {
        /// The rule that matched, if any.
        rule: Option<&'r Rule>,
        /// Why nothing is counted.
        cause: Cause,
    },
    /// A counter is queried.
    Counter(CounterQuery<'r>),
}

/// A query of one descriptor to one counter.
pub(super) struct CounterQuery<'r> {
    /// The rule that matched; `None` for a limit that the proxy sent.
    pub(super) rule: Option<&'r Rule>,
    /// The limit of the counter.
    pub(super) limit: Cow<'r, Limit>,
    /// The counter.
    pub(super) key: Key,
    /// Hits to take (positive), to give back (negative), or 0 to peek.
    pub(super) hits: i64,
    /// The lease that the hits open or close.
    pub(super) lease: Option<LeaseUse>,
}

/// The use of a lease by a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseUse {
    /// Takes hits under this id, if they are allowed.
    Open(LeaseId),
    /// Releases or settles what was taken under this id.
    Close(LeaseId),
}

impl<'r> Resolved<'r> {
    /// The rule that matched, if any.
    pub(super) fn rule(&self) -> Option<&'r Rule> {
        match self {
            Resolved::Uncounted { rule, .. } | Resolved::Counter(CounterQuery { rule, .. }) => {
                *rule
            }
        }
    }

    /// The limit that applies, if any.
    pub(super) fn limit(&self) -> Option<&Limit> {
        match self {
            Resolved::Uncounted { .. } => None,
            Resolved::Counter(query) => Some(&query.limit),
        }
    }
}
