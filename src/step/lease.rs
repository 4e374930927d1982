//! Leases: ids under which hits are taken. A lease is released or settled once.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::time::Micros;

/// The id of one lease.
///
/// 64 random bits suffice, because an id is only compared with other open leases of the same
/// counter. Among the 100 000 that a counter can have, two are equal with a probability of 3 in
/// 10^10. One word keeps a slot at 16 bytes. Lua compares the bytes, not a number.
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

/// 16 hexadecimal digits, as in dynamic metadata and in a `lease` entry.
impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The error for a text that is not a lease id. Its release is ignored, like an unknown id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease id has 16 lower-case hexadecimal digits; use the one from the granting response")]
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
    /// Takes the hits under this id. With concurrency, the slots belong to the id. With every other
    /// algorithm, the hits are a reservation, which can be settled before `until`. No effect on a
    /// peek, a refund or a denial.
    Open {
        /// The lease.
        id: LeaseId,
        /// The instant from which a reservation cannot be settled. Concurrency uses its `hold`
        /// instead.
        until: Micros,
    },
    /// Closes the lease; the sign of the hits is ignored. With concurrency, releases up to `hits`
    /// slots of this id. With every other algorithm, settles the reservation, so that the counter
    /// is charged with the hits once. An unknown id changes nothing.
    Close(LeaseId),
}

impl Lease {
    /// The id, if this opens a lease.
    pub(super) fn opened_id(self) -> Option<LeaseId> {
        match self {
            Lease::Open { id, .. } => Some(id),
            Lease::Close(_) => None,
        }
    }

    /// The id, if this closes a lease.
    pub(super) fn closed_id(self) -> Option<LeaseId> {
        match self {
            Lease::Open { .. } => None,
            Lease::Close(id) => Some(id),
        }
    }
}

/// Whether `hits`, or `lease`, are given back.
pub fn gives_back(hits: i64, lease: Option<Lease>) -> bool {
    hits < 0 || matches!(lease, Some(Lease::Close(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_parsed_from_its_own_text_only() {
        let id = LeaseId::from_bits(0x00ab_cdef_0123_4567);
        assert_eq!(id.to_string(), "00abcdef01234567");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "0", "0000000000000000", "00ABCDEF01234567", "+0abcdef01234567", "€€€€"]
        {
            assert_eq!(text.parse::<LeaseId>(), Err(ParseLeaseIdError), "{text}");
        }
    }
}
