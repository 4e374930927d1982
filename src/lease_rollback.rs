//! The rollback of leases: gives back what a request took, unless its response is delivered.

use std::fmt;

/// Gives back the slots or reservations that a request took under a lease when it is dropped,
/// because a caller that did not receive the lease's id cannot. After
/// [`commit`](LeaseRollback::commit) nothing is given back.
pub struct LeaseRollback(Vec<RollbackAction>);

/// Gives one slot or reservation back.
pub type RollbackAction = Box<dyn FnOnce() + Send + Sync>;

impl LeaseRollback {
    /// A rollback that runs these closures when it is dropped.
    pub fn new(actions: Vec<RollbackAction>) -> LeaseRollback {
        LeaseRollback(actions)
    }

    /// Commits the leases: the response has been written, so that the caller now owns them.
    pub fn commit(mut self) {
        self.0.clear();
    }
}

impl Drop for LeaseRollback {
    fn drop(&mut self) {
        for action in self.0.drain(..) {
            action();
        }
    }
}

impl fmt::Debug for LeaseRollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseRollback({})", self.0.len())
    }
}
