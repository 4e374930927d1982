//! Reads the counters of a rule in the memory of this process.

use futures_util::future::FutureExt;

use super::{UsageReader, UsageRows, other_store, store_failed};
use crate::usage::{UsageCursor, UsageFailure, UsageNames};

/// The rows of a page. Those nearest their limit are selected from all counters, and others in the order
/// of their keys. Never waits for long: a lock is held while one counter or one part of the names is read.
pub(super) fn read(reader: &UsageReader, names: &UsageNames) -> Result<UsageRows, UsageFailure> {
    let after = match reader.cursor {
        None => None,
        Some(UsageCursor::Memory(key)) => Some(key),
        Some(UsageCursor::Redis(_)) => return Err(other_store()),
    };
    let rule = reader.rule().id;
    let (mut selection, mut names_read, mut cursor) = (reader.selection(), 0, None);
    let first = after.map_or(0, |key| names.part_of(&key));
    'parts: for number in first.. {
        let Some(keys) = names.keys_of(rule, number) else { break };
        for key in keys.into_iter().filter(|key| after.is_none_or(|after| *key > after)) {
            // It may have been evicted meanwhile.
            let Some(texts) = names.texts(&key) else { continue };
            names_read += 1;
            // Counters in memory are read without waiting.
            let row = reader.row(&key, texts).now_or_never().transpose().map_err(store_failed)?;
            if let Some(row) = row.flatten() {
                selection.add(row);
            }
            if selection.is_full() {
                cursor = Some(UsageCursor::Memory(key));
                break 'parts;
            }
        }
    }
    Ok(UsageRows { rows: selection.finish(), names_read, unreadable: 0, cursor })
}
