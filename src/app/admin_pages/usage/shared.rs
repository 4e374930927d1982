//! Reads the counters of a rule in Redis.

use futures_util::future::try_join_all;

use super::{UsageReader, UsageRows, other_store, store_failed};
use crate::store::StoreError;
use crate::time::{Clock, Micros};
use crate::usage::{
    NamePosition, NameReader, NameStore, StoredName, UsageCursor, UsageFailure, UsageOrder,
    UsageRow,
};

/// The most names, and counters, of one request.
const NAMES_MAX: u64 = 20_000;

/// Counters that are read at a time. Decisions use the same connections.
const COUNTERS_AT_ONCE: usize = 128;

/// Time after which a request ends with what it has read.
const TIME_MAX: Micros = Micros::from_secs(2);

/// How often a counter is read, if a node is late or has too many calls.
const TRIES_MAX: usize = 3;

/// The rows of a page: those nearest their limit of all names that one request may read, or those of the
/// next names.
pub(super) async fn read(
    reader: &UsageReader,
    store: &dyn NameStore,
) -> Result<UsageRows, UsageFailure> {
    let from = match reader.cursor {
        None => NamePosition::START,
        Some(UsageCursor::Redis(position)) => position,
        Some(UsageCursor::Memory(_)) => return Err(other_store()),
    };
    let began = reader.clock.now();
    let is_late = || reader.clock.now().saturating_sub(began) >= TIME_MAX;
    let wanted = match reader.query.order {
        UsageOrder::Nearest => usize::MAX,
        UsageOrder::Name => reader.query.limit,
    };
    let bounds = (wanted, reader.scan_pages);
    let mut names = NameReader::new(store, reader.rule().id, from, bounds, began);
    let (mut selection, mut names_read) = (reader.selection(), 0);
    let cursor = 'names: loop {
        let Some(batch) = names.next().await.map_err(store_failed)? else {
            break names.position();
        };
        for chunk in batch.chunks(COUNTERS_AT_ONCE) {
            let rows = chunk.iter().map(|name| row_of(reader, name));
            let rows = try_join_all(rows).await.map_err(store_failed)?;
            for (name, row) in chunk.iter().zip(rows) {
                names_read += 1;
                if let Some(row) = row {
                    selection.add(row);
                }
                if selection.is_full() || names_read >= NAMES_MAX {
                    break 'names Some(NamePosition::after(name));
                }
            }
            if let Some(last) = chunk.last().filter(|_| is_late()) {
                break 'names Some(NamePosition::after(last));
            }
        }
        if is_late() {
            break names.position();
        }
    };
    let cursor = cursor.map(UsageCursor::Redis);
    let unreadable = names.unreadable();
    Ok(UsageRows { rows: selection.finish(), names_read, unreadable, cursor })
}

/// The state of the counter of a name. A peek may be repeated.
async fn row_of(reader: &UsageReader, name: &StoredName) -> Result<Option<UsageRow>, StoreError> {
    // The reader leaves out those without texts.
    let Some(texts) = name.counter_texts() else { return Ok(None) };
    let mut tries = 1;
    loop {
        match reader.row(&name.key, texts.clone()).await {
            Err(StoreError::Timeout | StoreError::Busy) if tries < TRIES_MAX => tries += 1,
            result => return result,
        }
    }
}
