//! The dynamic table of a decoder (RFC 7541, sections 2.3.2 and 4).
//!
//! The entries own their texts, so no read buffer stays in memory because of them. An entry whose name was
//! that of another one shares it, so a field of two bytes never copies a long name.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{FieldKind, NameKind};

/// The largest size, which the client may reduce. It is that of the protocol, because this server
/// announces no other (RFC 9113, section 6.5.2).
pub(super) const SIZE_MAX: usize = 4096;

/// What an entry counts in addition to its texts (RFC 7541, section 4.1).
pub(super) const ENTRY_BYTES: usize = 32;

/// Bytes of the counters in front of a shared name.
const NAME_BYTES: usize = 2 * size_of::<usize>();

/// The most entries, each without text.
#[cfg(test)]
const ENTRIES_MAX: usize = SIZE_MAX / ENTRY_BYTES;

#[derive(Debug)]
struct TableEntry {
    kind: FieldKind,
    name_kind: NameKind,
    name: Arc<[u8]>,
    value: Box<[u8]>,
}

impl TableEntry {
    /// What the entry counts (RFC 7541, section 4.1).
    fn size(&self) -> usize {
        self.name.len() + self.value.len() + ENTRY_BYTES
    }
}

/// The name of a literal.
pub(super) enum LiteralName<'n> {
    /// A part of the input, of the buffer of decoded names, or of the static table.
    Bytes(&'n [u8]),
    /// That of an entry of the dynamic table.
    Stored(Arc<[u8]>),
}

impl LiteralName<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            LiteralName::Bytes(bytes) => bytes,
            LiteralName::Stored(name) => name,
        }
    }

    fn into_shared(self) -> Arc<[u8]> {
        match self {
            LiteralName::Bytes(bytes) => bytes.into(),
            LiteralName::Stored(name) => name,
        }
    }
}

/// Fields that the client has stored. The newest is first.
#[derive(Debug)]
pub(super) struct DynamicTable {
    entries: VecDeque<TableEntry>,
    size: usize,
    size_max: usize,
}

impl DynamicTable {
    pub(super) fn new() -> DynamicTable {
        DynamicTable { entries: VecDeque::new(), size: 0, size_max: SIZE_MAX }
    }

    /// The entry with `index`, which counts from 0.
    pub(super) fn get(&self, index: usize) -> Option<(FieldKind, &[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        Some((entry.kind, &entry.name, &entry.value))
    }

    /// The name of the entry with `index`, which counts from 0.
    pub(super) fn name(&self, index: usize) -> Option<(NameKind, &Arc<[u8]>)> {
        let entry = self.entries.get(index)?;
        Some((entry.name_kind, &entry.name))
    }

    /// Stores a field. Older entries are dropped, and so is the field if it is too large.
    pub(super) fn insert(
        &mut self,
        (kind, name_kind): (FieldKind, NameKind),
        name: LiteralName<'_>,
        value: &[u8],
    ) {
        let bytes = name.bytes().len() + value.len() + ENTRY_BYTES;
        let fits = bytes <= self.size_max;
        self.shrink(self.size_max.saturating_sub(bytes));
        if fits {
            let (name, value) = (name.into_shared(), value.into());
            self.entries.push_front(TableEntry { kind, name_kind, name, value });
            self.size += bytes;
        }
    }

    /// Changes the largest size. Returns false if it exceeds [`SIZE_MAX`].
    pub(super) fn resize(&mut self, size_max: usize) -> bool {
        if size_max > SIZE_MAX {
            return false;
        }
        self.size_max = size_max;
        self.shrink(size_max);
        true
    }

    fn shrink(&mut self, size: usize) {
        while self.size > size {
            let Some(dropped) = self.entries.pop_back() else { return };
            self.size -= dropped.size();
        }
    }

    /// The most bytes in memory, without what the allocator adds: some entries may share names.
    pub(super) fn memory(&self) -> usize {
        let texts = self.size - self.entries.len() * ENTRY_BYTES;
        self.entries.capacity() * size_of::<TableEntry>() + self.entries.len() * NAME_BYTES + texts
    }
}

/// The most bytes that the table takes in memory.
#[cfg(test)]
pub(super) const MEMORY_MAX: usize =
    SIZE_MAX + ENTRIES_MAX * (size_of::<TableEntry>() + NAME_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn store(table: &mut DynamicTable, name: &[u8], value: &[u8]) {
        let kinds = (FieldKind::Plain, NameKind::Plain);
        table.insert(kinds, LiteralName::Bytes(name), value);
    }

    fn names(table: &DynamicTable) -> Vec<&[u8]> {
        (0..).map_while(|index| table.get(index)).map(|(_, name, _)| name).collect()
    }

    #[test]
    fn old_entries_make_room() {
        let mut table = DynamicTable::new();
        assert!(table.resize(100));
        for name in [b"a", b"b", b"c"] {
            store(&mut table, name, b"1234567");
        }
        assert_eq!(names(&table), [b"c", b"b"], "40 bytes each");
        store(&mut table, b"d", &[b'x'; 67]);
        assert_eq!(names(&table), [b"d"], "100 bytes");
        store(&mut table, b"e", &[b'x'; 68]);
        assert_eq!((names(&table).len(), table.size), (0, 0), "101 bytes");
    }

    #[test]
    fn a_smaller_table_drops_entries() {
        let mut table = DynamicTable::new();
        assert!(!table.resize(4097));
        store(&mut table, b"a", b"");
        store(&mut table, b"b", b"");
        assert!(table.resize(65));
        assert_eq!(names(&table), [b"b"]);
        assert!(table.resize(0));
        assert_eq!(table.get(0), None);
        store(&mut table, b"c", b"");
        assert_eq!(table.get(0), None);
        assert!(table.resize(4096));
        assert_eq!(table.size, 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut table = DynamicTable::new();
        for length in (0..100).chain([4063, 4064]).chain(0..300) {
            for _ in 0..200 {
                store(&mut table, b"", &vec![b'x'; length]);
                assert!(table.size <= SIZE_MAX);
                assert!(table.memory() <= MEMORY_MAX, "{} bytes", table.memory());
            }
        }
    }
}
