//! Shared changes in a hash of Redis.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::shared::{SharedChanges, SharedChangesError, StoredChanges};
use super::{CHANGE_BYTES_MAX, CHANGES_MAX};
use crate::key::CounterKey;
use crate::store::{CommandBound, GuardedStore, RedisStore, RedisValue, SharedStore, StoreError};
use crate::time::{Micros, SystemClock};

/// The hash: a field per change, its id, with the change in JSON.
const HASH: &str = "weir:{changes}";

/// The most fields that are read: those of [`CHANGES_MAX`] changes, and as many that are replaced or over
/// and that no instance has removed yet.
const FIELDS_MAX: usize = 2 * CHANGES_MAX;

/// The most bytes of a field, its id and the framing of both in a reply.
const FIELD_BYTES_MAX: usize = CHANGE_BYTES_MAX + 64;

/// The longest wait for a reply. No decision waits for these calls.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The counter whose node's clock is that of changes. All instances use the same one.
const CLOCK_KEY: CounterKey = CounterKey([0, 0]);

/// The changes in the Redis that has the counters.
pub struct RedisChanges(Arc<GuardedStore<RedisStore, SystemClock>>);

impl RedisChanges {
    /// The changes in the Redis of `store`.
    pub fn new(store: Arc<GuardedStore<RedisStore, SystemClock>>) -> RedisChanges {
        RedisChanges(store)
    }

    async fn command(&self, words: &[&[u8]]) -> Result<RedisValue, StoreError> {
        let bound = CommandBound {
            bytes: FIELDS_MAX * FIELD_BYTES_MAX,
            elements: 2 * FIELDS_MAX,
            timeout: TIMEOUT,
        };
        self.0.store().command(HASH, words, bound).await
    }

    async fn read_all(&self) -> Result<StoredChanges, SharedChangesError> {
        // Usually there is no change, and a reply over the bound would close the connection.
        let count = match self.command(&[b"HLEN", HASH.as_bytes()]).await? {
            RedisValue::Integer(count) => count,
            _ => return Err(StoreError::InvalidReply.into()),
        };
        if count == 0 {
            return Ok(Vec::new());
        }
        if !usize::try_from(count).is_ok_and(|count| count <= FIELDS_MAX) {
            return Err(SharedChangesError::TooMany(count));
        }
        fields(self.command(&[b"HGETALL", HASH.as_bytes()]).await?).map_err(Into::into)
    }
}

impl SharedChanges for RedisChanges {
    fn now(&self, local: Micros) -> Option<Micros> {
        // Not through the guard, which would count an error of a counter.
        self.0.store().now(&CLOCK_KEY, local).ok()
    }

    fn read(&self) -> BoxFuture<'_, Result<StoredChanges, SharedChangesError>> {
        self.read_all().boxed()
    }

    fn write<'a>(
        &'a self,
        id: &'a str,
        change: &'a [u8],
    ) -> BoxFuture<'a, Result<(), SharedChangesError>> {
        async move {
            match self.command(&[b"HSET", HASH.as_bytes(), id.as_bytes(), change]).await? {
                RedisValue::Integer(_) => Ok(()),
                _ => Err(StoreError::InvalidReply.into()),
            }
        }
        .boxed()
    }

    fn remove<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, SharedChangesError>> {
        async move {
            match self.command(&[b"HDEL", HASH.as_bytes(), id.as_bytes()]).await? {
                RedisValue::Integer(removed) => Ok(removed > 0),
                _ => Err(StoreError::InvalidReply.into()),
            }
        }
        .boxed()
    }
}

/// The fields and values of a hash. A field that is no text cannot be an id; it is shown with `?`.
fn fields(reply: RedisValue) -> Result<StoredChanges, StoreError> {
    let RedisValue::List(items) = reply else { return Err(StoreError::InvalidReply) };
    let (mut items, mut fields) = (items.into_iter(), Vec::new());
    while let Some(field) = items.next() {
        let (RedisValue::Bytes(id), Some(RedisValue::Bytes(value))) = (field, items.next()) else {
            return Err(StoreError::InvalidReply);
        };
        fields.push((String::from_utf8_lossy(&id).replace('\u{fffd}', "?"), value));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_of_bytes_are_fields() {
        let bytes = |text: &str| RedisValue::Bytes(text.as_bytes().to_vec());
        let list =
            |items: &[&str]| RedisValue::List(items.iter().map(|text| bytes(text)).collect());
        let pair = |id: &str, value: &str| (id.to_owned(), value.as_bytes().to_vec());
        assert_eq!(fields(list(&[])), Ok(Vec::new()));
        assert_eq!(fields(list(&["a", "1", "b", "2"])), Ok(vec![pair("a", "1"), pair("b", "2")]));
        let no_text = RedisValue::List(vec![RedisValue::Bytes(vec![0xff]), bytes("1")]);
        assert_eq!(fields(no_text), Ok(vec![pair("?", "1")]));
        for bad in [
            RedisValue::Nil,
            bytes("a"),
            list(&["a"]),
            list(&["a", "1", "b"]),
            RedisValue::List(vec![bytes("a"), RedisValue::Integer(1)]),
            RedisValue::List(vec![bytes("a"), RedisValue::Nil]),
        ] {
            assert_eq!(fields(bad.clone()), Err(StoreError::InvalidReply), "{bad:?}");
        }
    }
}
