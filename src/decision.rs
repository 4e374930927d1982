//! Decisions: what the rules and the counters say about one descriptor, and about a whole request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::limit::{OnError, Unit};
use crate::store_error::StoreError;
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

/// Whether something may pass, in the protocol's two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It may.
    Ok,
    /// It may not.
    OverLimit,
}

/// The limit a status speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentLimit {
    /// The rule's `name`.
    pub name: Option<Arc<str>>,
    /// Requests per window of the reported tier.
    pub requests: u64,
    /// The window, when it is exactly one unit.
    pub unit: Option<Unit>,
}

/// The answer to one descriptor, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What this descriptor alone says; shadow mode is already applied.
    pub code: Code,
    /// Absent when nothing limited the descriptor.
    pub limit: Option<CurrentLimit>,
    /// Hits that would still pass.
    pub remaining: u64,
    /// See [`Decision::reset_after`]; absent when nothing limited the descriptor.
    pub reset_after: Option<Micros>,
    /// How the status came about, for metrics and traces.
    pub cause: Cause,
}

/// How a status came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No file defines the request's domain.
    UnknownDomain,
    /// Nothing in the domain limits this descriptor.
    NoRule,
    /// The rule at this index matched, and another rule of the request replaces it.
    Replaced(usize),
    /// The rule at this index matched and lets everything pass.
    Unlimited(usize),
    /// A counter was asked.
    Counted {
        /// The rule, or none where the proxy sent a limit of its own.
        rule: Option<usize>,
        /// What the request asked of the counter.
        hits: i64,
        /// What the counter said.
        decision: Decision,
        /// The rule only watches: a denial was turned into OK.
        shadow: bool,
    },
    /// No counter could be asked; the fallback decided.
    Fallback {
        /// The rule, or none where the proxy sent a limit of its own.
        rule: Option<usize>,
        /// What the request asked of the counter.
        hits: i64,
        /// What the fallback said.
        allowed: bool,
        /// Who decided.
        by: OnError,
        /// What a counter of this instance said, where one decided.
        decision: Option<Decision>,
        /// Why the store did not answer.
        error: StoreError,
    },
}

/// What a request took under a lease: given back when this is dropped, unless the answer arrived.
///
/// A caller that has gone before it could read the lease's id would never give it back itself.
pub struct Grant(Vec<GiveBack>);

/// Gives one thing back.
pub type GiveBack = Box<dyn FnOnce() + Send + Sync>;

impl Grant {
    /// A grant of everything that `give_back` gives back.
    pub fn new(give_back: Vec<GiveBack>) -> Grant {
        Grant(give_back)
    }

    /// The answer has been written: from now on the lease is the caller's.
    pub fn delivered(mut self) {
        self.0.clear();
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        for give_back in self.0.drain(..) {
            give_back();
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grant({})", self.0.len())
    }
}

/// The answer to a whole request.
#[derive(Debug)]
pub struct Verdict {
    /// Whether the request may pass.
    pub code: Code,
    /// One per descriptor.
    pub statuses: Vec<Status>,
    /// Headers for the client's response: names in lower case, but those that the operator chose.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// What the proxy shall put into the request's dynamic metadata.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// The request was over its limit, and global shadow mode let it pass.
    pub shadowed: bool,
    /// What was taken under a lease, if anything.
    pub grant: Option<Grant>,
}
