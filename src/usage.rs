//! Usage: keeps the names of the counters of rules with `usage: true`, so that they can be listed.
//!
//! The key of a counter is a hash, which does not show the values of its requests. So the limiter records
//! the texts of each counter by which such a rule has decided:
//!
//! - With counters in memory, [`UsageNames`] keeps the texts, in a table that evicts.
//! - With Redis, it keeps which names were written, and a queue of those that were not. A job writes them
//!   to sorted sets, where any instance reads them (`name_set.rs`).
//!
//! A name is kept for twice the lifetime of its counter from the hit that recorded it. It is renewed by
//! the first hit after half of that time. So a counter with hits always has a name, and each instance
//! writes a name at most once in a lifetime.
//!
//! A page reads names, and then their counters. A name can only be missing, or be that of an empty
//! counter: numbers always come from the counters.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::atomic_count::AtomicCount;
use crate::descriptor::Entry;
use crate::key::{CounterKey, RuleId};
use crate::limit::Limit;
use crate::rules::Rule;
use crate::time::Micros;

mod counter_texts;
mod csv;
mod cursor;
mod lifetime;
mod name_reader;
mod name_set;
mod name_shard;
mod name_store;
mod name_table;
mod name_writer;
mod query;
mod row_selection;
mod set_commands;
#[cfg(test)]
mod tests;
mod usage_page;
mod write_queue;

pub use counter_texts::{CounterTexts, TEXTS_BYTES_MAX};
pub use csv::{CSV_TYPE, csv_header, csv_rows};
pub use cursor::UsageCursor;
pub use name_reader::{NamePosition, NameReader};
pub use name_set::{NameList, NameSet, StoredName};
pub use name_store::NameStore;
pub use query::{ROWS_MAX, UsageAnswer, UsageFailure, UsageFormat, UsageOrder, UsageQuery};
pub use row_selection::RowSelection;
pub use usage_page::{UsagePage, UsageRow, UsageTier, column_names};

use name_shard::NameEntry;
use name_table::NameTable;
use write_queue::{NameWrite, WriteQueue};

/// The names of counters, and what happened to them.
#[derive(Debug)]
pub struct UsageNames {
    table: NameTable,
    /// The names that wait to be written to Redis; `None` with counters in memory.
    queue: Option<WriteQueue>,
    /// The most names of one rule in Redis.
    max_names: usize,
    /// One request reads names at a time.
    reading: Arc<Semaphore>,
    dropped: AtomicCount,
    written: AtomicCount,
    write_errors: AtomicCount,
}

/// Current sizes and totals of the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSnapshot {
    /// Names in memory. With Redis, they were written, or wait to be.
    pub names: u64,
    /// Names that were evicted to make room for others.
    pub evicted: u64,
    /// The counts of names that go to Redis; `None` with counters in memory.
    pub writes: Option<NameWrites>,
}

/// What happened to the names that go to Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameWrites {
    /// Names that wait to be written.
    pub queued: u64,
    /// Names that were written, or renewed.
    pub written: u64,
    /// Names that were dropped because too many waited. The next hit records them again.
    pub dropped: u64,
    /// Failed writes of several names of one rule.
    pub errors: u64,
}

impl UsageNames {
    /// Names of counters in memory, at most about `max_names`.
    pub fn in_memory(max_names: usize) -> Arc<UsageNames> {
        UsageNames::new(max_names, None)
    }

    /// Names of counters in Redis. At most about `max_names` of them are known in memory as written, and
    /// a rule has at most as many in Redis.
    pub fn shared(max_names: usize) -> Arc<UsageNames> {
        UsageNames::new(max_names, Some(WriteQueue::default()))
    }

    fn new(max_names: usize, queue: Option<WriteQueue>) -> Arc<UsageNames> {
        let (dropped, written, write_errors) = Default::default();
        let (table, reading) = (NameTable::new(max_names), Arc::new(Semaphore::new(1)));
        Arc::new(UsageNames { table, queue, max_names, reading, dropped, written, write_errors })
    }

    /// Records that a counter of `rule` has hits at `now`, by the clock of its store. `entries` are those
    /// of a descriptor that has the counter, and `limit` is its limit.
    pub fn record(
        &self,
        rule: &Rule,
        limit: &Limit,
        key: &CounterKey,
        entries: &[Entry<'_>],
        now: Micros,
    ) {
        let lifetime = lifetime::of_counter(limit, rule.reserve);
        if !self.table.touch(key, whole_secs(now), whole_secs(lifetime)) {
            self.keep(rule, key, entries, now, lifetime);
        }
    }

    #[cold]
    fn keep(
        &self,
        rule: &Rule,
        key: &CounterKey,
        entries: &[Entry<'_>],
        now: Micros,
        lifetime: Micros,
    ) {
        let until = now.saturating_add(lifetime).saturating_add(lifetime);
        let texts = counter_texts::encode(rule, entries);
        let texts = match &self.queue {
            None => Some(texts),
            Some(queue) => {
                let name = StoredName { key: *key, until, texts };
                let write = NameWrite { set: NameSet::of(rule.id, key), name };
                if queue.push(write).is_err() {
                    // It is not marked as written, so the next hit records it again.
                    return self.dropped.add();
                }
                None
            }
        };
        let entry = NameEntry { key: *key, rule: rule.id, until_secs: whole_secs(until), texts };
        self.table.insert(entry, whole_secs(now));
    }

    /// Waits until no other request reads names, and returns the permit to read them.
    pub async fn turn(&self) -> OwnedSemaphorePermit {
        let reading = self.reading.clone();
        reading.acquire_owned().await.expect("the semaphore is never closed")
    }

    /// The counters of `rule` in the part `number` of the memory, in the order of their keys. `None`
    /// after the last part. All keys of a part come before those of the next one.
    pub fn keys_of(&self, rule: RuleId, number: usize) -> Option<Vec<CounterKey>> {
        self.table.keys_of(rule, number)
    }

    /// The part of the memory that has the counter `key`.
    pub fn part_of(&self, key: &CounterKey) -> usize {
        self.table.number_of(key)
    }

    /// The texts of a counter in memory; `None` if they were evicted, or are in Redis.
    pub fn texts(&self, key: &CounterKey) -> Option<CounterTexts> {
        CounterTexts::decode(&self.table.texts(key)?)
    }

    /// Current sizes and totals.
    pub fn snapshot(&self) -> UsageSnapshot {
        let (names, evicted) = self.table.counts();
        let writes = self.queue.as_ref().map(|queue| NameWrites {
            queued: queue.len() as u64,
            written: self.written.get(),
            dropped: self.dropped.get(),
            errors: self.write_errors.get(),
        });
        UsageSnapshot { names, evicted, writes }
    }
}

impl StoredName {
    /// The texts of the counter; `None` if the bytes are not those of texts.
    pub fn counter_texts(&self) -> Option<CounterTexts> {
        CounterTexts::decode(&self.texts)
    }

    /// Whether the bytes are those of texts.
    fn has_texts(&self) -> bool {
        self.counter_texts().is_some()
    }
}

/// `micros` in seconds, rounded down, at most [`u32::MAX`].
fn whole_secs(micros: Micros) -> u32 {
    u32::try_from(micros.0 / Micros::SECOND.0).unwrap_or(u32::MAX)
}
