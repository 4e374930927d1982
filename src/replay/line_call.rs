//! A call whose texts are places in its line. Its buffers are used for many lines, so that a line costs no
//! allocation.

use std::ops::Range;

use crate::decision::Code;
use crate::limit::Override;

/// A call that was read from a line.
#[derive(Debug, Default)]
pub(super) struct LineCall {
    /// The recorded instant, in microseconds since 1970.
    pub(super) at: u64,
    pub(super) domain: TextPlace,
    /// The hits of descriptors without their own.
    pub(super) hits: u32,
    /// The recorded code of the response.
    pub(super) code: Option<Code>,
    /// The recorded id of the lease that the call opened.
    pub(super) lease: Option<TextPlace>,
    /// Whether an entry may name a lease that an earlier call has opened.
    pub(super) names_lease: bool,
    /// The entries of all descriptors.
    pub(super) entries: Vec<EntryPlace>,
    pub(super) descriptors: Vec<CallDescriptor>,
}

/// A descriptor of a call. Its entries end where those of the next one begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallDescriptor {
    pub(super) first_entry: u32,
    pub(super) entries_end: u32,
    /// The limit that the proxy sent.
    pub(super) limit: Option<Override>,
    pub(super) hits_addend: Option<u64>,
    pub(super) is_negative_hits: bool,
    /// The recorded code of the descriptor alone.
    pub(super) recorded: Option<Code>,
}

/// The places of the key and of the value of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPlace {
    pub(super) key: TextPlace,
    pub(super) value: TextPlace,
}

/// The place of a text in a longer one, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextPlace {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl LineCall {
    /// Removes everything, and keeps the buffers.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.descriptors.clear();
        (self.code, self.lease, self.names_lease) = (None, None, false);
    }
}

impl CallDescriptor {
    /// The numbers of its entries.
    pub(super) fn entries(&self) -> Range<usize> {
        self.first_entry as usize..self.entries_end as usize
    }
}

impl EntryPlace {
    /// The same entry in a copy of the text, in which the byte `from` is the byte `to`.
    pub(super) fn moved(self, from: u32, to: u32) -> EntryPlace {
        EntryPlace { key: self.key.moved(from, to), value: self.value.moved(from, to) }
    }
}

impl TextPlace {
    /// The text, which is in `whole`.
    pub(super) fn of(self, whole: &str) -> &str {
        &whole[self.start as usize..self.end as usize]
    }

    fn moved(self, from: u32, to: u32) -> TextPlace {
        TextPlace { start: self.start - from + to, end: self.end - from + to }
    }
}
