//! Declares the settings `request.*`.

use crate::descriptor::RequestBounds;
use crate::settings::format::number;
use crate::settings::section::section;

// The upper ends keep one request cheap, whatever an operator writes.
section! {
    /// The largest request. A request over a bound gets INVALID_ARGUMENT.
    impl RequestBounds {
        /// Maximum number of descriptors in one request.
        max_descriptors: usize = "256", number(1..=10_000);
        /// Maximum number of entries in one descriptor.
        max_entries: usize = "32", number(1..=1_000);
        /// Maximum number of bytes of the domain, of a key, or of a value.
        max_text_bytes: usize = "65536", number(1..=1 << 20);
    }
}
