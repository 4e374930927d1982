//! Writes the names that wait to Redis.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use tokio::time::{MissedTickBehavior, interval};

use super::UsageNames;
use super::name_set::{NameSet, SETS, StoredName};
use super::name_store::NameStore;
use super::write_queue::NameWrite;
use crate::time::{Clock, Micros};

/// Time between two rounds of writes.
const ROUND: Duration = Duration::from_millis(500);

/// The most names of one round: 10 000 per second.
const NAMES_PER_ROUND: usize = 5_000;

/// The most writes of one round. Each is a transaction of five commands on one set.
const WRITES_PER_ROUND: usize = 1_000;

/// The most names of one write.
const NAMES_PER_WRITE: usize = 100;

/// Writes that wait for their replies at a time.
const IN_FLIGHT_MAX: usize = 32;

/// Rounds at the end of the process.
const LAST_ROUNDS: usize = 20;

/// Names of one set, written together.
type NameBatch = (NameSet, Vec<StoredName>);

impl UsageNames {
    /// Writes the names that wait, every half second, until `stop` completes. Then it writes the rest.
    /// Names that cannot be written wait again.
    pub async fn run_writer(
        &self,
        store: &dyn NameStore,
        clock: &impl Clock,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = pin!(stop);
        let mut ticks = interval(ROUND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while let Either::Left(_) = select(pin!(ticks.tick()), stop.as_mut()).await {
            self.write_round(store, clock.now()).await;
        }
        for _ in 0..LAST_ROUNDS {
            if !self.write_round(store, clock.now()).await {
                return;
            }
        }
    }

    /// Writes at most [`NAMES_PER_ROUND`] names. Returns whether more can be written now: some wait, and
    /// no write has failed.
    pub(super) async fn write_round(&self, store: &dyn NameStore, local: Micros) -> bool {
        let Some(queue) = &self.queue else { return false };
        let mut batches = batches(queue.take(NAMES_PER_ROUND));
        let later = batches.split_off(batches.len().min(WRITES_PER_ROUND));
        self.drop_names(queue.put_back(writes(later)));
        let mut failed = Vec::new();
        let mut left = batches.into_iter();
        loop {
            let some: Vec<NameBatch> = left.by_ref().take(IN_FLIGHT_MAX).collect();
            if some.is_empty() {
                break;
            }
            let written = some.iter().map(|batch| self.write(store, batch, local));
            let written: Vec<bool> = join_all(written).await;
            let unwritten = some.into_iter().zip(written).filter(|(_, is_written)| !is_written);
            failed.extend(unwritten.map(|(batch, _)| batch));
        }
        let has_failed = !failed.is_empty();
        // At the end of the queue, so that a node that fails does not stop the names of others.
        let writes = writes(failed).into_iter();
        self.drop_names(writes.filter_map(|write| queue.push(write).err()).collect());
        !has_failed && queue.len() > 0
    }

    /// Returns whether the names were written.
    async fn write(&self, store: &dyn NameStore, batch: &NameBatch, local: Micros) -> bool {
        let (set, names) = batch;
        let per_set = self.max_names.div_ceil(SETS);
        let result = match store.now(*set, local) {
            Ok(now) => store.write(*set, names, now, per_set).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => {
                self.written.add_many(names.len() as u64);
                true
            }
            Err(error) => {
                tracing::debug!(%error, names = names.len(), "names of counters not written");
                self.write_errors.add();
                false
            }
        }
    }

    /// Drops names that have no room in the queue. Their next hits record them again.
    fn drop_names(&self, writes: Vec<NameWrite>) {
        for write in writes {
            self.table.remove(&write.name.key);
            self.dropped.add();
        }
    }
}

/// The names of `batches`, each with its set.
fn writes(batches: Vec<NameBatch>) -> Vec<NameWrite> {
    let of_batch =
        |(set, names): NameBatch| names.into_iter().map(move |name| NameWrite { set, name });
    batches.into_iter().flat_map(of_batch).collect()
}

/// Groups writes by set, in parts of at most [`NAMES_PER_WRITE`].
fn batches(writes: Vec<NameWrite>) -> Vec<NameBatch> {
    let mut by_set: HashMap<NameSet, usize> = HashMap::new();
    let mut batches: Vec<NameBatch> = Vec::new();
    for NameWrite { set, name } in writes {
        let at = by_set.entry(set).or_insert(usize::MAX);
        match batches.get_mut(*at) {
            Some((_, names)) if names.len() < NAMES_PER_WRITE => names.push(name),
            _ => {
                *at = batches.len();
                batches.push((set, vec![name]));
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{CounterKey, RuleId};

    #[test]
    fn names_of_one_set_are_written_together() {
        let write = |rule: u64, number: u64| {
            let key = CounterKey([number, number]);
            let name = StoredName { key, until: Micros(1), texts: Box::default() };
            NameWrite { set: NameSet::of(RuleId([rule, 0]), &key), name }
        };
        let far = 1 << 63;
        let writes = (0..250).flat_map(|number| [write(1, number), write(2, number)]);
        let batches = batches(writes.chain([write(1, far)]).collect());
        let sizes: Vec<(u64, usize, usize)> =
            batches.iter().map(|(set, names)| (set.rule.0[0], set.number, names.len())).collect();
        let expected = [(1, 0, 100), (2, 0, 100), (1, 0, 100), (2, 0, 100), (1, 0, 50), (2, 0, 50)];
        assert_eq!(sizes[..6], expected);
        assert_eq!(sizes[6..], [(1, 64, 1)]);
        let of_rule = batches.iter().filter(|(set, _)| set.rule == RuleId([1, 0]));
        let numbers: Vec<u64> =
            of_rule.flat_map(|(_, names)| names.iter().map(|name| name.key.0[0])).collect();
        assert_eq!(numbers, (0..250).chain([far]).collect::<Vec<_>>(), "in order");
    }
}
