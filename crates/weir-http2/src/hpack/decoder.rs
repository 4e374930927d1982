//! Decodes header blocks (RFC 7541, sections 3 and 6).

use super::dynamic_table::{DynamicTable, LiteralName};
use super::{FieldKind, NameKind, huffman, integer, static_table};

/// A block that breaks the rules of HPACK, or that the visitor gave up. The connection cannot continue,
/// because its table is unknown (RFC 9113, section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompressionError;

/// The buffers of decoded strings keep at most this many bytes between blocks.
const SCRATCH_KEPT: usize = 512;

/// The decoder of one connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: DynamicTable,
    /// Changes whenever the table changes.
    version: u64,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder { table: DynamicTable::new(), version: 0, name: Vec::new(), value: Vec::new() }
    }

    /// A number that changes whenever the table changes. Equal blocks have equal fields while it does
    /// not.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Bytes in memory, without what the allocator adds.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + self.name.capacity() + self.value.capacity()
    }

    /// Decodes `block`, and calls `visit` with the kind, the name and the value of each field. `visit` returns
    /// whether to go on: two bytes of a block may stand for a field of four thousand.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        visit: impl FnMut(FieldKind, &[u8], &[u8]) -> bool,
    ) -> Result<(), CompressionError> {
        let decoded = self.decode_fields(block, visit).ok_or(CompressionError);
        for buffer in [&mut self.name, &mut self.value] {
            buffer.clear();
            buffer.shrink_to(SCRATCH_KEPT);
        }
        decoded
    }

    fn decode_fields(
        &mut self,
        mut input: &[u8],
        mut visit: impl FnMut(FieldKind, &[u8], &[u8]) -> bool,
    ) -> Option<()> {
        let Decoder { table, version, name, value: decoded } = self;
        let mut has_fields = false;
        while let Some(&first) = input.first() {
            match first {
                0x80.. => {
                    let index = integer::read(&mut input, 7)?;
                    let (kind, name, value) = field(table, index)?;
                    visit(kind, name, value).then_some(())?;
                }
                0x40.. => {
                    let (name_kind, name) = read_name(&mut input, 6, table, name)?;
                    let value = read_value(&mut input, decoded)?;
                    let kind = name_kind.with_value(value);
                    visit(kind, table.bytes(name), value).then_some(())?;
                    table.insert((kind, name_kind), name, value);
                    *version += 1;
                }
                0x20.. => {
                    let size = integer::read(&mut input, 5)?;
                    if has_fields || !table.resize(size) {
                        return None;
                    }
                    *version += 1;
                    continue;
                }
                // Literals that are not stored, or must never be.
                _ => {
                    let (name_kind, name) = read_name(&mut input, 4, table, name)?;
                    let value = read_value(&mut input, decoded)?;
                    let kind = name_kind.with_value(value);
                    visit(kind, table.bytes(name), value).then_some(())?;
                }
            }
            has_fields = true;
        }
        Some(())
    }
}

/// The field with `index` in both tables.
fn field(table: &DynamicTable, index: usize) -> Option<(FieldKind, &[u8], &[u8])> {
    match index.checked_sub(static_table::ENTRIES + 1) {
        None => static_table::get(index),
        Some(index) => table.get(index),
    }
}

/// Reads the name of a literal: an index with a prefix of `bits` bits, or a string, which may be decoded into
/// `decoded`.
fn read_name<'n, 'i: 'n>(
    input: &mut &'i [u8],
    bits: u32,
    table: &DynamicTable,
    decoded: &'n mut Vec<u8>,
) -> Option<(NameKind, LiteralName<'n>)> {
    let index = integer::read(input, bits)?;
    if let Some(index) = index.checked_sub(static_table::ENTRIES + 1) {
        return Some((table.name_kind(index)?, LiteralName::Stored(index)));
    }
    let name = if index > 0 {
        static_table::get(index)?.1
    } else {
        let (text, is_encoded) = read_string(input)?;
        if is_encoded {
            decoded.clear();
            huffman::decode(text, decoded)?;
            decoded
        } else {
            text
        }
    };
    Some((NameKind::of(name), LiteralName::Bytes(name)))
}

/// Reads the value of a literal. It is a part of the input, or of `decoded`.
fn read_value<'v, 'i: 'v>(input: &mut &'i [u8], decoded: &'v mut Vec<u8>) -> Option<&'v [u8]> {
    let (text, is_encoded) = read_string(input)?;
    if !is_encoded {
        return Some(text);
    }
    decoded.clear();
    huffman::decode(text, decoded)?;
    Some(decoded)
}

/// Reads a string, and whether it is in Huffman codes (RFC 7541, section 5.2).
fn read_string<'i>(input: &mut &'i [u8]) -> Option<(&'i [u8], bool)> {
    let is_encoded = input.first()? & 0x80 != 0;
    let length = integer::read(input, 7)?;
    let (text, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some((text, is_encoded))
}

#[cfg(test)]
mod tests;
