//! Leases: the names under which hits are taken, so that they can be given back or settled exactly
//! once.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::time::Micros;

/// The name of one lease.
///
/// 64 random bits are enough: ids are only ever compared with the other leases that are open on the
/// same counter. Among the 100 000 a counter can hold, two are equal with a chance of 3 in 10^10.
/// One word keeps a held slot at 16 bytes, and Lua compares the text, never a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId(pub NonZeroU64);

impl LeaseId {
    /// The id made of these random bits.
    pub const fn from_bits(bits: u64) -> LeaseId {
        match NonZeroU64::new(bits) {
            Some(bits) => LeaseId(bits),
            None => LeaseId(NonZeroU64::MAX),
        }
    }
}

/// 16 hexadecimal digits: how a lease travels in dynamic metadata and in a `lease` entry.
impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The text is not the id of any lease of ours; to release it is to release an unknown id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease id is 16 lower-case hexadecimal digits, as the granting answer gave it")]
pub struct ParseLeaseIdError;

impl FromStr for LeaseId {
    type Err = ParseLeaseIdError;

    fn from_str(text: &str) -> Result<LeaseId, ParseLeaseIdError> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 16 || !text.bytes().all(digit) {
            return Err(ParseLeaseIdError);
        }
        let bits = u64::from_str_radix(text, 16).map_err(|_| ParseLeaseIdError)?;
        NonZeroU64::new(bits).map(LeaseId).ok_or(ParseLeaseIdError)
    }
}

/// What a step does with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The hits are taken under this id. Concurrency: the slots belong to it. Every other
    /// algorithm: a reservation, which can be settled before `until`. Means nothing on a peek or a
    /// refund, or when the hits are denied.
    Open {
        /// The name.
        id: LeaseId,
        /// When a reservation can no longer be settled (concurrency uses its own hold instead).
        until: Micros,
    },
    /// Ends the lease; the sign of the hits does not matter. Concurrency: gives back
    /// `min(hits, held)` slots of this id. Every other algorithm: settles, so that the counter ends
    /// charged with the hits, once. An unknown id changes nothing.
    Close(LeaseId),
}

impl Lease {
    /// The id of a lease that is opened.
    pub(super) fn opens(self) -> Option<LeaseId> {
        match self {
            Lease::Open { id, .. } => Some(id),
            Lease::Close(_) => None,
        }
    }

    /// The id of a lease that is ended.
    pub(super) fn closes(self) -> Option<LeaseId> {
        match self {
            Lease::Open { .. } => None,
            Lease::Close(id) => Some(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_and_nothing_else_is_one() {
        let id = LeaseId::from_bits(0x00ab_cdef_0123_4567);
        assert_eq!(id.to_string(), "00abcdef01234567");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "0", "0000000000000000", "00ABCDEF01234567", "+0abcdef01234567", "€€€€"]
        {
            assert_eq!(text.parse::<LeaseId>(), Err(ParseLeaseIdError), "{text}");
        }
    }
}
