//! Counts the steps of searches for regular expressions in tests. Elsewhere it does nothing.
//!
//! A step is one state of the compiled expression at one position of the value. Every engine of
//! `regex-automata` takes at most one step per state and position.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the most steps that a search of `value` in `states` states takes.
#[cfg(test)]
pub(super) fn record(states: usize, value: &str) {
    STEPS.set(STEPS.get() + states as u64 * (value.len() as u64 + 1));
}

#[cfg(not(test))]
pub(super) fn record(_states: usize, _value: &str) {}

/// The steps of this thread since the last call.
#[cfg(test)]
pub(in crate::rules) fn take() -> u64 {
    STEPS.take()
}
