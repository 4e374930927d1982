//! Resolved descriptors: a query to one counter, or the reason why nothing is counted.
//!
//! A request passes through these types in order:
//!
//! 1. [`Descriptor`](crate::descriptor::Descriptor): an item of the request.
//! 2. [`ResolvedDescriptor`]: its rule, and the [`CounterQuery`] to make. `resolve.rs` finds them.
//! 3. [`PendingDescriptor`](super::pending::PendingDescriptor): the query with its instant and its
//!    lease, then the counter's reply. `modes::CounterCheck` is the part that is sent to the counter.
//! 4. [`DecidedDescriptor`](super::decided::DecidedDescriptor): the reason for the decision. `fold.rs`
//!    joins them into the verdict.

use std::borrow::Cow;

use crate::decision::DecisionReason;
use crate::key::CounterKey;
use crate::limit::Limit;
use crate::rules::Rule;
use crate::step::LeaseId;
use crate::time::Micros;

/// A descriptor with its rule and counter.
pub(super) enum ResolvedDescriptor<'r> {
    /// Nothing is counted.
    Uncounted {
        /// The rule that matched, if any.
        rule: Option<&'r Rule>,
        /// Why nothing is counted.
        reason: DecisionReason,
    },
    /// A temporary change denies the hits, and nothing is counted.
    Blocked {
        /// The rule that matched, if any.
        rule: Option<&'r Rule>,
        /// The hits.
        hits: i64,
        /// The time until the block ends.
        reset_after: Micros,
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
    /// Whether a temporary change has replaced the numbers of the rule.
    pub(super) is_changed: bool,
    /// The counter.
    pub(super) key: CounterKey,
    /// Hits to take (positive), to give back (negative), or 0 to peek: those of the request, times the
    /// cost of the rule.
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

impl<'r> ResolvedDescriptor<'r> {
    /// The rule that matched, if any.
    pub(super) fn rule(&self) -> Option<&'r Rule> {
        match self {
            ResolvedDescriptor::Uncounted { rule, .. }
            | ResolvedDescriptor::Blocked { rule, .. } => *rule,
            ResolvedDescriptor::Counter(query) => query.rule,
        }
    }

    /// The limit that applies, if any.
    pub(super) fn limit(&self) -> Option<&Limit> {
        match self {
            ResolvedDescriptor::Uncounted { .. } | ResolvedDescriptor::Blocked { .. } => None,
            ResolvedDescriptor::Counter(query) => Some(&query.limit),
        }
    }

    /// Whether this is a quota descriptor, which denies only if all other quota descriptors do. A block
    /// always denies, and a bypass has no part in this.
    pub(super) fn is_quota(&self, global_quota: bool) -> bool {
        let (is_exempt, is_replaced) = match self {
            ResolvedDescriptor::Uncounted { reason, .. } => (
                matches!(reason, DecisionReason::Unlimited(_) | DecisionReason::Bypassed { .. }),
                matches!(reason, DecisionReason::Replaced(_)),
            ),
            ResolvedDescriptor::Blocked { .. } => (true, false),
            ResolvedDescriptor::Counter(_) => (false, false),
        };
        if global_quota {
            return !is_exempt;
        }
        !is_exempt && !is_replaced && self.rule().is_some_and(|rule| rule.quota_mode)
    }

    /// Whether a temporary change lets the hits pass without a count.
    pub(super) fn is_bypassed(&self) -> bool {
        matches!(
            self,
            ResolvedDescriptor::Uncounted { reason: DecisionReason::Bypassed { .. }, .. }
        )
    }

    /// The name of the temporary change that applies, if any.
    pub(super) fn change(&self) -> Option<&'static str> {
        match self {
            ResolvedDescriptor::Uncounted { .. } => self.is_bypassed().then_some("bypass"),
            ResolvedDescriptor::Blocked { .. } => Some("block"),
            ResolvedDescriptor::Counter(query) => query.is_changed.then_some("limit"),
        }
    }
}
