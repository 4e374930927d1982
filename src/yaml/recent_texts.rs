//! Shares the memory of texts that repeat in a file, such as names of fields and units.

use std::sync::Arc;

/// Texts that are remembered, a power of two. Files repeat about ten.
const SLOTS: usize = 256;
/// Longest text that is shared, in bytes.
const BYTES_MAX: usize = 32;

/// The last short texts of a file. Each hash has one slot, so the memory is bounded, and a file that
/// is made to collide only loses the sharing.
pub(super) struct RecentTexts(Box<[Option<Arc<str>>]>);

impl Default for RecentTexts {
    fn default() -> Self {
        RecentTexts(vec![None; SLOTS].into())
    }
}

impl RecentTexts {
    /// The text, in the memory of an equal text before if it is remembered.
    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
        if text.len() > BYTES_MAX {
            return text.into();
        }
        let slot = &mut self.0[slot(text)];
        match slot {
            Some(known) if **known == *text => Arc::clone(known),
            _ => Arc::clone(slot.insert(text.into())),
        }
    }
}

/// FNV-1a, folded into the number of slots.
fn slot(text: &str) -> usize {
    let add = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = text.bytes().fold(0x811c_9dc5, add);
    (hash ^ (hash >> 16)) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text is itself in every slot, and a repeated one takes no more memory.
    #[test]
    fn short_texts_share_memory() {
        let mut texts = RecentTexts::default();
        for number in 0..4 * SLOTS {
            let name = format!("name{number}");
            let (first, second) = (texts.share(&name), texts.share(&name));
            assert_eq!(*first, *name);
            assert!(Arc::ptr_eq(&first, &second), "{name}");
        }
        let long = "x".repeat(BYTES_MAX + 1);
        let (first, second) = (texts.share(&long), texts.share(&long));
        assert_eq!(*first, *long);
        assert!(!Arc::ptr_eq(&first, &second), "it would stay in memory");
    }
}
