//! Shared changes: the place where all instances have the same changes.

use futures_util::future::BoxFuture;

use crate::store_error::StoreError;
use crate::time::Micros;

/// Stored changes: the id and the bytes of each one.
pub type StoredChanges = Vec<(String, Vec<u8>)>;

/// Where all instances keep their changes. Every call is bounded in time.
pub trait SharedChanges: Send + Sync + 'static {
    /// The instant by the clock of the store, at `local` by the local clock. `None` if it is unknown.
    fn now(&self, local: Micros) -> Option<Micros>;

    /// All stored changes, by id.
    ///
    /// # Errors
    ///
    /// The reason why they are unknown.
    fn read(&self) -> BoxFuture<'_, Result<StoredChanges, SharedChangesError>>;

    /// Stores a change under `id`.
    ///
    /// # Errors
    ///
    /// The reason why it was possibly not stored.
    fn write<'a>(
        &'a self,
        id: &'a str,
        change: &'a [u8],
    ) -> BoxFuture<'a, Result<(), SharedChangesError>>;

    /// Removes the change `id`. Returns whether it existed, so only one of several callers gets true.
    ///
    /// # Errors
    ///
    /// The reason why it is possibly still stored.
    fn remove<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, SharedChangesError>>;
}

/// Why shared changes were not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedChangesError {
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The hash has more fields than weir writes.
    #[error(
        "the hash `weir:{{changes}}` has {0} fields, more than weir writes; delete those of other \
         programs"
    )]
    TooMany(i64),
}
