//! The dynamic table of a decoder (RFC 7541, sections 2.3.2 and 4).
//!
//! The entries own their texts, so no read buffer stays in memory because of them.

use std::collections::VecDeque;

use super::{FieldKind, NameKind};

/// The largest size, which the client may reduce. It is that of the protocol, because this server
/// announces no other (RFC 9113, section 6.5.2).
pub(super) const SIZE_MAX: usize = 4096;

/// What an entry counts in addition to its texts (RFC 7541, section 4.1).
pub(super) const ENTRY_BYTES: usize = 32;

/// The most entries, each without text.
#[cfg(test)]
const ENTRIES_MAX: usize = SIZE_MAX / ENTRY_BYTES;

#[derive(Debug)]
struct TableEntry {
    kind: FieldKind,
    name_kind: NameKind,
    name_bytes: u16,
    /// The name and the value.
    text: Box<[u8]>,
}

impl TableEntry {
    fn name(&self) -> &[u8] {
        &self.text[..usize::from(self.name_bytes)]
    }
}

/// The name of a literal.
#[derive(Clone, Copy)]
pub(super) enum LiteralName<'n> {
    /// A part of the input, of the buffer of decoded names, or of the static table.
    Bytes(&'n [u8]),
    /// That of the entry with this index, which counts from 0.
    Stored(usize),
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
        let (name, value) = entry.text.split_at(usize::from(entry.name_bytes));
        Some((entry.kind, name, value))
    }

    /// The kind of the name of the entry with `index`, which counts from 0.
    pub(super) fn name_kind(&self, index: usize) -> Option<NameKind> {
        Some(self.entries.get(index)?.name_kind)
    }

    /// The bytes of `name`.
    pub(super) fn bytes<'n>(&'n self, name: LiteralName<'n>) -> &'n [u8] {
        match name {
            LiteralName::Bytes(bytes) => bytes,
            LiteralName::Stored(index) => self.entries.get(index).map_or(&[], TableEntry::name),
        }
    }

    /// Stores a field. Older entries are dropped, and so is the field if it is too large.
    pub(super) fn insert(
        &mut self,
        (kind, name_kind): (FieldKind, NameKind),
        name: LiteralName<'_>,
        value: &[u8],
    ) {
        let name = self.bytes(name);
        let (name_bytes, bytes) = (name.len() as u16, name.len() + value.len() + ENTRY_BYTES);
        // The name may be that of an entry that is dropped, so the text is copied first.
        let fits = bytes <= self.size_max;
        let text = if fits { [name, value].concat() } else { Vec::new() };
        self.shrink(self.size_max.saturating_sub(bytes));
        if fits {
            let text = text.into();
            self.entries.push_front(TableEntry { kind, name_kind, name_bytes, text });
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
            self.size -= dropped.text.len() + ENTRY_BYTES;
        }
    }

    /// Bytes in memory, without what the allocator adds.
    pub(super) fn memory(&self) -> usize {
        let texts = self.size - self.entries.len() * ENTRY_BYTES;
        self.entries.capacity() * size_of::<TableEntry>() + texts
    }
}

/// The most bytes that the table takes in memory.
#[cfg(test)]
pub(super) const MEMORY_MAX: usize = SIZE_MAX + ENTRIES_MAX * size_of::<TableEntry>();

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
