//! The names of counters that instances share in Redis: writes and reads the sets.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::name_set::{NameList, NameSet, StoredName};
use super::set_commands;
use crate::store::{CommandBound, GuardedStore, RedisStore, SharedStore, StoreError};
use crate::time::{Micros, SystemClock};

/// Longest wait for one command. It is a page of a listing or a batch of names, so it takes longer than
/// a decision.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A store of names that instances share.
pub trait NameStore: Send + Sync + 'static {
    /// The instant on the clock of the node that has `set`, at `local` by the local clock.
    ///
    /// # Errors
    ///
    /// The reason why the clock is unknown.
    fn now(&self, set: NameSet, local: Micros) -> Result<Micros, StoreError>;

    /// Adds `names` to `set`, or renews them, and removes those that are out of date at `now`. The set
    /// then has the `most` names with the longest time. May be repeated.
    ///
    /// # Errors
    ///
    /// The reason why the names may be missing.
    fn write<'a>(
        &'a self,
        set: NameSet,
        names: &'a [StoredName],
        now: Micros,
        most: usize,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The first members of `set` that are kept at least until `from`, at most `most`.
    ///
    /// # Errors
    ///
    /// The reason why they are unknown.
    fn read(
        &self,
        set: NameSet,
        from: Micros,
        most: usize,
    ) -> BoxFuture<'_, Result<NameList, StoreError>>;
}

impl NameStore for GuardedStore<RedisStore, SystemClock> {
    fn now(&self, set: NameSet, local: Micros) -> Result<Micros, StoreError> {
        SharedStore::now(self, &set.counter(), local)
    }

    fn write<'a>(
        &'a self,
        set: NameSet,
        names: &'a [StoredName],
        now: Micros,
        most: usize,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let key = set.redis_key();
            let commands = set_commands::write(&key, names, now, most);
            let words: Vec<Vec<&[u8]>> =
                commands.iter().map(|words| words.iter().map(Vec::as_slice).collect()).collect();
            let commands: Vec<&[&[u8]]> = words.iter().map(Vec::as_slice).collect();
            self.transaction(&key, &commands, CommandBound::small(TIMEOUT)).await?;
            Ok(())
        }
        .boxed()
    }

    fn read(
        &self,
        set: NameSet,
        from: Micros,
        most: usize,
    ) -> BoxFuture<'_, Result<NameList, StoreError>> {
        async move {
            let key = set.redis_key();
            let words = set_commands::read(&key, from, most);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let reply = self.command(&key, &words, CommandBound::small(TIMEOUT)).await?;
            set_commands::decode(&reply).ok_or(StoreError::InvalidReply)
        }
        .boxed()
    }
}
