//! Temporary changes: until an instant, a rule or a descriptor has another limit, is blocked, or is not
//! limited at all.
//!
//! A [`TemporaryChange`] is data. [`ActiveChanges`] are all changes in the form in which a decision looks
//! them up; they are pure. [`CurrentChanges`] has the active ones of this process, for all threads.
//! [`ChangeRegistry`] makes, ends and reads changes, and replaces those of [`CurrentChanges`]. With Redis,
//! all instances share them ([`SharedChanges`]).
//!
//! A decision never waits for a change, and a change never affects the key or the count of a counter.

use std::time::Duration;

use crate::time::Micros;

mod active;
mod audit_log;
mod change;
mod current;
mod plan_warning;
mod problem;
mod redis_hash;
mod registry;
mod request;
mod rule_names;
mod shared;
#[cfg(test)]
mod tests;

pub use active::{ActiveChanges, AppliedChange, ListedChange};
pub use change::{ChangeAction, ChangeTarget, TemporaryChange, instant_text};
pub use current::CurrentChanges;
pub use problem::ChangeProblem;
pub use redis_hash::RedisChanges;
pub use registry::{ChangeRegistry, EndedChange, MadeChange, RulesNow};
pub use request::ChangeRequest;
pub use rule_names::NamedRule;
pub use shared::{SharedChanges, SharedChangesError, StoredChanges};

/// The most changes at a time. All instances read all of them twice a second.
pub const CHANGES_MAX: usize = 1_000;

/// The longest change: 90 days. What holds longer belongs into the rules.
pub const CHANGE_LENGTH_MAX: Micros = Micros::from_secs(90 * 86_400);

/// The most bytes of a change as it is stored.
pub const CHANGE_BYTES_MAX: usize = 4_096;

/// The period in which the shared changes are read. Every instance has a new change after this time and
/// two calls to Redis.
pub const POLL_PERIOD: Duration = Duration::from_millis(500);
