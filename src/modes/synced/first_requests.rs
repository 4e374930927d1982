//! First requests: the requests to counters without a replica, which the store decides.
//!
//! One request to a counter is under way at a time, and the others wait for it. So when its outcome
//! becomes the replica, the store has no hit of this instance that the replica lacks. If there is no
//! room for a replica, requests do not wait, and none of them creates a replica.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::key::Key;

/// The first requests that are under way.
#[derive(Default)]
pub(super) struct FirstRequests(Mutex<HashMap<Key, UnderWay>>);

/// The requests to one counter.
#[derive(Default)]
struct UnderWay {
    /// Whether one of them may create the replica.
    first: bool,
    /// Whether the counter was deleted since the first one began.
    void: bool,
    /// Those that wait for the first one.
    waiting: Vec<oneshot::Sender<()>>,
    /// Those that do not wait.
    direct: usize,
}

/// The place of a request to a counter without a replica.
pub(super) enum Place<'a> {
    /// The store decides it.
    Decide(Turn<'a>),
    /// It waits for the end of another one.
    Wait(oneshot::Receiver<()>),
}

/// A request that the store decides. Dropping it lets the next one begin.
pub(super) struct Turn<'a> {
    all: &'a FirstRequests,
    key: Key,
    creates: bool,
}

impl FirstRequests {
    /// Begins a request to `key`. `room` is whether there is room for a replica.
    pub(super) fn begin(&self, key: &Key, room: bool) -> Place<'_> {
        let mut all = self.lock();
        let one = all.entry(*key).or_default();
        if one.first {
            let (sender, receiver) = oneshot::channel();
            one.waiting.push(sender);
            return Place::Wait(receiver);
        }
        let creates = room && one.direct == 0;
        if creates {
            one.first = true;
        } else {
            one.direct += 1;
        }
        drop(all);
        Place::Decide(Turn { all: self, key: *key, creates })
    }

    /// Voids the outcome of the request under way, because its counter is being deleted.
    pub(super) fn delete(&self, key: &Key) {
        if let Some(one) = self.lock().get_mut(key) {
            one.void = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, UnderWay>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Whether the outcome may become the replica.
    pub(super) fn creates(&self) -> bool {
        self.creates && self.all.lock().get(&self.key).is_some_and(|one| !one.void)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let Some(one) = all.get_mut(&self.key) else { return };
        if self.creates {
            (one.first, one.void) = (false, false);
            for waiting in one.waiting.drain(..) {
                // A cancelled request no longer waits.
                let _ = waiting.send(());
            }
        } else {
            one.direct -= 1;
        }
        if !one.first && one.direct == 0 {
            all.remove(&self.key);
        }
    }
}
