//! The quotas to look at in the next round, in queues by client: those of a client with many do not delay
//! those of the others.

use std::collections::VecDeque;

use crate::key::CounterKey;
use crate::quota::HolderId;

/// Clients with equal rests of their hashes share a queue.
const QUEUES: usize = 64;

/// Some queues of [`DueQuotas`], a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientQueues(u64);

impl ClientQueues {
    /// The queues of the clients of these holders; one of them all if there is no holder.
    pub(super) fn of(holders: impl IntoIterator<Item = HolderId>) -> ClientQueues {
        let bit = |holder: HolderId| 1 << (holder.client() % QUEUES as u64);
        ClientQueues(holders.into_iter().map(bit).reduce(|all, one| all | one).unwrap_or(1))
    }
}

/// What a quota has to know about its entries in [`DueQuotas`].
#[derive(Debug, Default)]
pub(super) struct DueMark {
    is_due: bool,
    /// The queues with an entry. The quota is taken by the entry that comes first, and the others have no effect
    /// unless it is due again.
    entries: ClientQueues,
}

impl DueMark {
    /// Takes the quota by its entry of `queue`. Returns whether it is due.
    pub(super) fn take(&mut self, queue: ClientQueues) -> bool {
        self.entries.0 &= !queue.0;
        std::mem::take(&mut self.is_due)
    }
}

/// Counters of quotas, in the order of their arrival in each queue. The queues are served in turn, one entry each.
#[derive(Debug)]
pub(super) struct DueQuotas {
    queues: [VecDeque<CounterKey>; QUEUES],
    /// The queues with entries.
    filled: ClientQueues,
    /// The number of the queue to look at next.
    next: u32,
}

impl Default for DueQuotas {
    fn default() -> DueQuotas {
        let queues = std::array::from_fn(|_| VecDeque::new());
        DueQuotas { queues, filled: ClientQueues::default(), next: 0 }
    }
}

impl DueQuotas {
    /// The quota of `key`, whose mark is `mark`, is due for clients of these queues.
    pub(super) fn push(&mut self, key: CounterKey, queues: ClientQueues, mark: &mut DueMark) {
        mark.is_due = true;
        let mut new = queues.0 & !mark.entries.0;
        mark.entries.0 |= new;
        self.filled.0 |= new;
        while new != 0 {
            self.queues[new.trailing_zeros() as usize].push_back(key);
            new &= new - 1;
        }
    }

    /// Removes the next quota that is due. `take` calls [`DueMark::take`], and returns false without a mark.
    pub(super) fn take(
        &mut self,
        mut take: impl FnMut(&CounterKey, ClientQueues) -> bool,
    ) -> Option<CounterKey> {
        while self.filled.0 != 0 {
            let ahead = self.filled.0.rotate_right(self.next).trailing_zeros();
            let number = (self.next + ahead) % QUEUES as u32;
            let queue = ClientQueues(1 << number);
            self.next = (number + 1) % QUEUES as u32;
            let entries = &mut self.queues[number as usize];
            let key = entries.pop_front();
            if entries.is_empty() {
                entries.shrink_to(16);
                self.filled.0 &= !queue.0;
            }
            if let Some(key) = key
                && take(&key, queue)
            {
                return Some(key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::HashMap;

    use proptest::prelude::*;

    /// A queue with the marks of its quotas.
    #[derive(Default)]
    struct Queue {
        due: DueQuotas,
        marks: HashMap<CounterKey, DueMark>,
    }

    impl Queue {
        fn push(&mut self, key: u64, client: u64) {
            let key = CounterKey([key, 0]);
            let queues = ClientQueues::of([HolderId([client, 0])]);
            self.due.push(key, queues, self.marks.entry(key).or_default());
        }

        fn take(&mut self) -> Option<u64> {
            let Queue { due, marks } = self;
            let key =
                due.take(|key, queue| marks.get_mut(key).is_some_and(|mark| mark.take(queue)))?;
            Some(key.0[0])
        }

        fn take_all(&mut self) -> Vec<u64> {
            std::iter::from_fn(|| self.take()).collect()
        }

        fn entries(&self) -> usize {
            self.due.queues.iter().map(VecDeque::len).sum()
        }
    }

    #[test]
    fn clients_are_served_in_turn() {
        let mut queue = Queue::default();
        for key in 0..100 {
            queue.push(key, 7);
        }
        queue.push(200, 8);
        queue.push(201, 8);
        queue.push(300, 7 + QUEUES as u64);
        let order = queue.take_all();
        assert_eq!(order[..5], [0, 200, 1, 201, 2]);
        assert_eq!(order[102], 300, "it shares the queue of the first client");
        assert_eq!(order.len(), 103);
    }

    #[test]
    fn a_quota_of_several_clients_is_taken_once() {
        let mut queue = Queue::default();
        for client in 1..=3 {
            queue.push(1, client);
            queue.push(1, client);
        }
        assert_eq!(queue.take_all(), [1]);
        assert_eq!(queue.entries(), 0);
    }

    /// The other client waits for its own quotas only, also in a quota that both use.
    #[test]
    fn a_shared_quota_is_taken_by_the_shortest_queue() {
        let mut queue = Queue::default();
        for key in (100..200).chain([1]) {
            queue.push(key, 7);
        }
        queue.push(1, 8);
        assert_eq!([queue.take(), queue.take()], [Some(100), Some(1)]);
    }

    #[test]
    fn a_quota_waits_in_the_queues_of_all_its_holders() {
        let holder = |client: u64| HolderId([client, 0]);
        let queues = ClientQueues::of([7, 8, 8 + QUEUES as u64].map(holder));
        assert_eq!(queues, ClientQueues(1 << 7 | 1 << 8));
        let mut queue = Queue::default();
        (100..200).for_each(|key| queue.push(key, 7));
        let key = CounterKey([1, 0]);
        queue.due.push(key, queues, queue.marks.entry(key).or_default());
        assert_eq!([queue.take(), queue.take()], [Some(100), Some(1)]);
        assert_eq!(queue.take_all().len(), 99);
        assert_ne!(ClientQueues::of([]), ClientQueues(0), "a quota without holders is taken, too");
    }

    #[test]
    fn a_deleted_quota_is_not_taken() {
        let mut queue = Queue::default();
        queue.push(1, 7);
        queue.push(2, 7);
        queue.marks.remove(&CounterKey([1, 0]));
        assert_eq!(queue.take_all(), [2]);
    }

    proptest! {
        /// Each due quota is taken once, also if it was deleted and made again. Entries are bounded by what was
        /// deleted and by a queue each.
        #[test]
        fn what_is_due_is_taken(
            steps in prop::collection::vec((0..4_u64, any::<u64>(), 0..4_usize), 0..200),
        ) {
            let mut queue = Queue::default();
            let (mut due, mut deleted) = (std::collections::HashSet::new(), 0);
            for (key, client, what) in steps {
                queue.push(key, client);
                due.insert(key);
                if what == 3 {
                    queue.marks.remove(&CounterKey([key, 0]));
                    due.remove(&key);
                    deleted += 1;
                    continue;
                }
                for _ in 0..what {
                    match queue.take() {
                        Some(key) => prop_assert!(due.remove(&key)),
                        None => prop_assert!(due.is_empty()),
                    }
                }
                prop_assert!(queue.entries() <= (4 + deleted) * QUEUES);
            }
            prop_assert_eq!(queue.take_all().len(), due.len());
            prop_assert_eq!(queue.entries(), 0);
        }
    }
}
