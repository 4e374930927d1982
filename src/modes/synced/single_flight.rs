//! Single flight: the requests to counters without a replica, which the store decides.
//!
//! One request to a counter is under way at a time, and the others wait for it. So when its outcome
//! becomes the replica, the store has no hit of this instance that the replica lacks. If there is no
//! room for a replica, requests do not wait, and none of them creates a replica.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::key::CounterKey;

/// The requests that are under way, by counter.
#[derive(Default)]
pub(super) struct SingleFlight(Mutex<HashMap<CounterKey, Flights>>);

/// The requests to one counter.
#[derive(Default)]
struct Flights {
    /// Whether one of them leads: it may create the replica, and the others wait for it.
    has_leader: bool,
    /// Whether the counter was deleted since the leader began.
    invalidated: bool,
    /// Those that wait for the leader.
    waiting: Vec<oneshot::Sender<()>>,
    /// Those that do not wait.
    independent: usize,
}

/// The role of a request to a counter without a replica.
pub(super) enum Role<'a> {
    /// It calls the store, which decides it.
    Caller(Flight<'a>),
    /// It waits for the end of another one.
    Waiter(oneshot::Receiver<()>),
}

/// A request that the store decides. Dropping it lets the next one begin.
pub(super) struct Flight<'a> {
    all: &'a SingleFlight,
    key: CounterKey,
    creates: bool,
}

impl SingleFlight {
    /// Begins a request to `key`. `room` is whether there is room for a replica.
    pub(super) fn begin(&self, key: &CounterKey, room: bool) -> Role<'_> {
        let mut all = self.lock();
        let one = all.entry(*key).or_default();
        if one.has_leader {
            let (sender, receiver) = oneshot::channel();
            one.waiting.push(sender);
            return Role::Waiter(receiver);
        }
        let creates = room && one.independent == 0;
        if creates {
            one.has_leader = true;
        } else {
            one.independent += 1;
        }
        drop(all);
        Role::Caller(Flight { all: self, key: *key, creates })
    }

    /// Invalidates the outcome of the request under way, because its counter is being deleted.
    pub(super) fn delete(&self, key: &CounterKey) {
        if let Some(one) = self.lock().get_mut(key) {
            one.invalidated = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CounterKey, Flights>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight<'_> {
    /// Whether the outcome may become the replica.
    pub(super) fn creates(&self) -> bool {
        self.creates && self.all.lock().get(&self.key).is_some_and(|one| !one.invalidated)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let Some(one) = all.get_mut(&self.key) else { return };
        if self.creates {
            (one.has_leader, one.invalidated) = (false, false);
            for waiting in one.waiting.drain(..) {
                // A cancelled request no longer waits.
                let _ = waiting.send(());
            }
        } else {
            one.independent -= 1;
        }
        if !one.has_leader && one.independent == 0 {
            all.remove(&self.key);
        }
    }
}
