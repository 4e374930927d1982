//! A store of names in memory that counts its reads and may fail.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::{BoxFuture, FutureExt, ready};

use crate::store::StoreError;
use crate::testing::lock;
use crate::time::Micros;
use crate::usage::{NameList, NameSet, NameStore, StoredName};

/// Names by set, in the order of a sorted set.
#[derive(Default)]
pub(super) struct FakeNames {
    sets: Mutex<HashMap<NameSet, Vec<StoredName>>>,
    /// The instants of members of each set that are no names.
    pub(super) others: Mutex<Vec<Micros>>,
    pub(super) reads: AtomicUsize,
    pub(super) fails: AtomicBool,
}

impl FakeNames {
    /// All names.
    pub(super) fn names(&self) -> Vec<StoredName> {
        lock(&self.sets).values().flatten().cloned().collect()
    }

    fn write_now(&self, set: NameSet, names: &[StoredName], now: Micros, most: usize) {
        let mut sets = lock(&self.sets);
        let known = sets.entry(set).or_default();
        for name in names {
            match known.iter_mut().find(|one| one.key == name.key) {
                Some(one) => one.until = one.until.max(name.until),
                None => known.push(name.clone()),
            }
        }
        known.retain(|name| name.until > now);
        known.sort_by_key(|name| (name.until, name.key));
        let over = known.len().saturating_sub(most);
        known.drain(..over);
    }
}

impl NameStore for FakeNames {
    fn now(&self, _: NameSet, local: Micros) -> Result<Micros, StoreError> {
        Ok(local)
    }

    fn write<'a>(
        &'a self,
        set: NameSet,
        names: &'a [StoredName],
        now: Micros,
        most: usize,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        if self.fails.load(Ordering::Relaxed) {
            return ready(Err(StoreError::Unreachable)).boxed();
        }
        self.write_now(set, names, now, most);
        ready(Ok(())).boxed()
    }

    fn read(
        &self,
        set: NameSet,
        from: Micros,
        most: usize,
    ) -> BoxFuture<'_, Result<NameList, StoreError>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let sets = lock(&self.sets);
        let of_set = sets.get(&set).into_iter().flatten();
        let names = of_set.filter(|name| name.until >= from).cloned().map(Ok);
        let others = lock(&self.others);
        let others = others.iter().filter(|until| **until >= from).copied().map(Err);
        // In the order of their instants; of one instant, names are first.
        let mut members: Vec<Result<StoredName, Micros>> = names.chain(others).collect();
        members
            .sort_by_key(|member| member.as_ref().map_or_else(|until| *until, |name| name.until));
        let mut list = NameList::default();
        for member in members.into_iter().take(most) {
            match member {
                Ok(name) => list.names.push(name),
                Err(until) => list.unreadable.push(until),
            }
        }
        ready(Ok(list)).boxed()
    }
}
