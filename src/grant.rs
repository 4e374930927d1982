//! Grants: what a request took under a lease, until its response is delivered.

use std::fmt;

/// The slots or reservations that a request took under a lease. Dropping it gives them back,
/// because a caller that did not receive the lease's id cannot. After
/// [`delivered`](Grant::delivered) nothing is given back.
pub struct Grant(Vec<GiveBack>);

/// Gives one slot or reservation back.
pub type GiveBack = Box<dyn FnOnce() + Send + Sync>;

impl Grant {
    /// A grant that runs these closures when it is dropped.
    pub fn new(give_back: Vec<GiveBack>) -> Grant {
        Grant(give_back)
    }

    /// Records that the response has been written, so that the caller now owns the lease.
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
