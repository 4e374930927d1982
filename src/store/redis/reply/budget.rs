//! The budget of memory for the incomplete replies of all connections. A server that names many nodes
//! could otherwise fill the process with a large reply from each.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget of this process, in bytes.
static PROCESS: ReplyBudget = ReplyBudget::new(32 << 20);

/// Bytes that incomplete replies may still take.
#[derive(Debug)]
pub(super) struct ReplyBudget {
    free: AtomicUsize,
}

impl ReplyBudget {
    /// A budget of this many bytes.
    pub(super) const fn new(bytes: usize) -> ReplyBudget {
        ReplyBudget { free: AtomicUsize::new(bytes) }
    }
}

/// The part of a budget that one connection has taken. Dropping it gives the bytes back.
#[derive(Debug)]
pub(super) struct BudgetShare {
    budget: &'static ReplyBudget,
    taken: usize,
}

impl BudgetShare {
    /// An empty share of `budget`.
    pub(super) const fn of(budget: &'static ReplyBudget) -> BudgetShare {
        BudgetShare { budget, taken: 0 }
    }

    /// Takes more until the share has `bytes`. Returns false, and takes nothing, without room for it.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.taken);
        if more == 0 {
            return true;
        }
        let (free, relaxed) = (&self.budget.free, Ordering::Relaxed);
        let has_room = free.fetch_update(relaxed, relaxed, |free| free.checked_sub(more)).is_ok();
        if has_room {
            self.taken = bytes;
        }
        has_room
    }

    /// Gives all bytes back.
    pub(super) fn clear(&mut self) {
        if self.taken > 0 {
            self.budget.free.fetch_add(self.taken, Ordering::Relaxed);
            self.taken = 0;
        }
    }
}

impl Default for BudgetShare {
    /// An empty share of the budget of this process.
    fn default() -> BudgetShare {
        BudgetShare::of(&PROCESS)
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.clear();
    }
}
