//! The bounds of bucket ids, and the reasons why an id is refused.

use prost::encoding::encoded_len_varint;

use super::refused_reason::RefusedReason;
use crate::descriptor::{Entry, RequestBounds};

/// Largest id in bytes, encoded. A stream keeps the encoded id of each bucket.
pub(super) const ID_BYTES_MAX: usize = 4096;

/// Why a bucket id is refused: its bucket gets no assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It has no pair.
    #[error("the id has no key")]
    NoPair,
    /// A pair has no key.
    #[error("the id has an empty key")]
    EmptyKey,
    /// It has more pairs than a descriptor may have entries.
    #[error("the id has {pairs} keys, at most {max} (request.max_entries)")]
    ManyPairs {
        /// Its pairs.
        pairs: usize,
        /// The bound.
        max: usize,
    },
    /// A key or a value is longer than a text of a request may be.
    #[error("a key or a value of the id has {bytes} bytes, at most {max} (request.max_text_bytes)")]
    LongText {
        /// The length of the text.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// It is too long as Envoy sends it.
    #[error("the id has {bytes} bytes, encoded as Envoy sends it, at most {max}")]
    LongId {
        /// Its length, encoded.
        bytes: usize,
        /// The bound.
        max: usize,
    },
}

impl IdError {
    /// The reason in metrics and logs.
    pub(super) fn refused_reason(self) -> RefusedReason {
        match self {
            IdError::NoPair | IdError::EmptyKey => RefusedReason::EmptyId,
            IdError::ManyPairs { .. } | IdError::LongText { .. } | IdError::LongId { .. } => {
                RefusedReason::LongId
            }
        }
    }
}

/// Checks the pairs of an id, as for every report.
///
/// # Errors
///
/// There is none, one has no key, there are too many, or one has too long a text.
pub(super) fn check_pairs(pairs: &[Entry<'_>], bounds: &RequestBounds) -> Result<(), IdError> {
    if pairs.is_empty() {
        return Err(IdError::NoPair);
    }
    if pairs.iter().any(|pair| pair.key.is_empty()) {
        return Err(IdError::EmptyKey);
    }
    if pairs.len() > bounds.max_entries {
        return Err(IdError::ManyPairs { pairs: pairs.len(), max: bounds.max_entries });
    }
    let max = bounds.max_text_bytes;
    let lengths = pairs.iter().map(|pair| pair.key.len().max(pair.value.len()));
    match lengths.max() {
        Some(bytes) if bytes > max => Err(IdError::LongText { bytes, max }),
        _ => Ok(()),
    }
}

/// The length of an encoded `BucketId` of these pairs.
fn encoded_length(pairs: &[Entry<'_>]) -> usize {
    let field = |content: usize| 1 + encoded_len_varint(content as u64) + content;
    pairs.iter().map(|pair| field(field(pair.key.len()) + field(pair.value.len()))).sum()
}

/// Checks the length of an id, as for every new bucket. Returns its length, encoded.
///
/// # Errors
///
/// It is too long.
pub(super) fn check_length(pairs: &[Entry<'_>]) -> Result<usize, IdError> {
    match encoded_length(pairs) {
        bytes if bytes > ID_BYTES_MAX => Err(IdError::LongId { bytes, max: ID_BYTES_MAX }),
        bytes => Ok(bytes),
    }
}

/// Checks everything that a stream checks of an id.
///
/// # Errors
///
/// The reason why a stream refuses it.
pub(super) fn check_id(pairs: &[Entry<'_>], bounds: &RequestBounds) -> Result<(), IdError> {
    check_pairs(pairs, bounds)?;
    check_length(pairs).map(|_| ())
}
