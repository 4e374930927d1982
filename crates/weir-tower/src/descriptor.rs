//! What a request counts for.

use crate::messages::{DescriptorEntry, RateLimitDescriptor};

/// One descriptor of a request: its entries in order, and its hits.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor(pub(crate) RateLimitDescriptor);

impl Descriptor {
    /// A descriptor with one entry, which counts one hit.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Descriptor {
        let descriptor = Descriptor(RateLimitDescriptor::default());
        descriptor.entry(key, value)
    }

    /// Appends an entry.
    pub fn entry(mut self, key: impl Into<String>, value: impl Into<String>) -> Descriptor {
        self.0.entries.push(DescriptorEntry { key: key.into(), value: value.into() });
        self
    }

    /// Sets the number of hits. 0 peeks: it decides, and counts nothing.
    pub fn hits(mut self, hits: u64) -> Descriptor {
        self.0.hits_addend = Some(hits);
        self
    }
}
