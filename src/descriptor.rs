//! Requests and their descriptors, borrowed from the decoded message.
//!
//! [`Request::validate`] runs before any lookup. One invalid descriptor makes the request invalid.

use smallvec::SmallVec;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::limit::{HITS_END, Override};

mod parse;

pub use parse::ParsedDescriptor;

/// One (key, value) pair of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key. It is never empty in a valid request.
    pub key: &'a str,
    /// The value, which may be empty.
    pub value: &'a str,
}

/// The key of the entry that names a lease: a slot to release, or a reservation to settle.
pub const LEASE_KEY: &str = "lease";

/// The lease in `entries`, and the other entries. `None` if there is no `lease` entry.
pub fn split_lease<'a>(entries: &[Entry<'a>]) -> Option<(&'a str, SmallVec<[Entry<'a>; 8]>)> {
    let lease = entries.iter().find(|entry| entry.key == LEASE_KEY)?.value;
    let others = entries.iter().filter(|entry| entry.key != LEASE_KEY);
    Some((lease, others.copied().collect()))
}

/// An ordered list of entries, with the hits of the request on their counter.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The entries. They are matched against the rule tree from left to right, one level per entry.
    pub entries: &'a [Entry<'a>],
    /// A limit sent by the proxy. It replaces the rule's limit.
    pub limit: Option<Override>,
    /// The descriptor's hits, which override those of the request. 0 peeks.
    pub hits_addend: Option<u64>,
    /// Whether the hits are given back instead of taken.
    pub is_negative_hits: bool,
}

/// One call of `ShouldRateLimit`.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Namespace of the rules.
    pub domain: &'a str,
    /// The descriptors, which are decided independently.
    pub descriptors: &'a [Descriptor<'a>],
    /// Hits of descriptors without their own. 0 counts as 1, because the protocol cannot distinguish
    /// 0 from absent.
    pub hits_addend: u32,
    /// The caller's timeout for the response, if it sent one.
    pub timeout: Option<Duration>,
    /// The caller's trace context.
    pub trace: TraceContext<'a>,
    /// Becomes true when the call may not wait for the store any longer. `None`: it may always.
    pub must_decide: Option<&'a AtomicBool>,
}

/// The trace context of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceContext<'a> {
    /// `traceparent` of W3C Trace Context, unparsed.
    pub traceparent: Option<&'a str>,
    /// `tracestate`, unparsed.
    pub tracestate: Option<&'a str>,
}

impl Descriptor<'_> {
    /// The hits of this descriptor: positive hits are taken, 0 peeks, negative hits are given back.
    /// `request_hits` is the request's addend. The request must be [valid](Request::validate).
    pub fn hits(&self, request_hits: u32) -> i64 {
        let size = self.hits_addend.unwrap_or(u64::from(request_hits.max(1)));
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        if self.is_negative_hits { -size } else { size }
    }
}

/// Bounds of a request (`request.*`, where the defaults are). A request over a bound is rejected, never
/// truncated. Envoy sends far less: one descriptor per configured rate limit, and values from headers
/// of at most 60 KiB in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBounds {
    /// The most descriptors of one request.
    pub max_descriptors: usize,
    /// The most entries of one descriptor.
    pub max_entries: usize,
    /// The most bytes of the domain, of one key, or of one value.
    pub max_text_bytes: usize,
}

/// Why a request is invalid. Servers return `INVALID_ARGUMENT` with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The domain is empty.
    #[error("domain must not be empty; set `domain` in the rate limit filter")]
    EmptyDomain,
    /// There are no descriptors.
    #[error("descriptors must not be empty; send at least one")]
    NoDescriptors,
    /// More descriptors than [`RequestBounds::max_descriptors`].
    #[error(
        "{sent} descriptors in a request, more than {max}; send fewer, or raise \
         request.max_descriptors"
    )]
    TooManyDescriptors {
        /// The number in the request.
        sent: usize,
        /// The bound.
        max: usize,
    },
    /// More entries than [`RequestBounds::max_entries`].
    #[error(
        "descriptor {index}: {sent} entries, more than {max}; send fewer, or raise \
         request.max_entries"
    )]
    TooManyEntries {
        /// Position of the descriptor in the request, from 0.
        index: usize,
        /// The number in the request.
        sent: usize,
        /// The bound.
        max: usize,
    },
    /// A domain, key or value over [`RequestBounds::max_text_bytes`].
    #[error(
        "{what} is {sent} bytes long, more than {max}; shorten it, or raise request.max_text_bytes"
    )]
    TooLong {
        /// The text that is too long.
        what: &'static str,
        /// The length of the text in bytes.
        sent: usize,
        /// The bound.
        max: usize,
    },
    /// An entry without a key.
    #[error("descriptor {index} has an entry with an empty key; give each entry a key")]
    EmptyKey {
        /// Position of the descriptor in the request, from 0.
        index: usize,
    },
    /// Hits of 2^53 or more, which a Lua number cannot represent exactly.
    #[error("descriptor {index}: hits_addend {sent} is too large; it must be below 2^53")]
    TooManyHits {
        /// Position of the descriptor in the request, from 0.
        index: usize,
        /// The hits in the request.
        sent: u64,
    },
    /// A limit override with an unknown unit.
    #[error(
        "descriptor {index}: limit.unit {unit} is not a unit of time; use SECOND (1) to WEEK (7)"
    )]
    UnknownUnit {
        /// Position of the descriptor in the request, from 0.
        index: usize,
        /// The unit in the request.
        unit: i32,
    },
}

impl RequestBounds {
    /// Checks the domain of a request, or of the first report of an RLQS stream.
    ///
    /// # Errors
    ///
    /// It is empty or too long.
    pub fn check_domain(&self, domain: &str) -> Result<(), RequestError> {
        if domain.is_empty() {
            return Err(RequestError::EmptyDomain);
        }
        check_length("domain", domain, self)
    }
}

impl Request<'_> {
    /// Whether the call must be decided now, without waiting for the store.
    pub fn must_decide(&self) -> bool {
        self.must_decide.is_some_and(|must_decide| must_decide.load(Ordering::Relaxed))
    }

    /// Checks the request against `bounds`, in one pass over the entries and without allocation.
    ///
    /// # Errors
    ///
    /// The first problem that is found.
    pub fn validate(&self, bounds: &RequestBounds) -> Result<(), RequestError> {
        bounds.check_domain(self.domain)?;
        if self.descriptors.is_empty() {
            return Err(RequestError::NoDescriptors);
        }
        if self.descriptors.len() > bounds.max_descriptors {
            let (sent, max) = (self.descriptors.len(), bounds.max_descriptors);
            return Err(RequestError::TooManyDescriptors { sent, max });
        }
        for (index, descriptor) in self.descriptors.iter().enumerate() {
            descriptor.validate(index, bounds)?;
        }
        Ok(())
    }
}

impl Descriptor<'_> {
    fn validate(&self, index: usize, bounds: &RequestBounds) -> Result<(), RequestError> {
        if self.entries.len() > bounds.max_entries {
            let (sent, max) = (self.entries.len(), bounds.max_entries);
            return Err(RequestError::TooManyEntries { index, sent, max });
        }
        for entry in self.entries {
            if entry.key.is_empty() {
                return Err(RequestError::EmptyKey { index });
            }
            check_length("an entry's key", entry.key, bounds)?;
            check_length("an entry's value", entry.value, bounds)?;
        }
        match self.hits_addend {
            Some(sent) if sent >= HITS_END => Err(RequestError::TooManyHits { index, sent }),
            _ => Ok(()),
        }
    }
}

fn check_length(
    what: &'static str,
    text: &str,
    bounds: &RequestBounds,
) -> Result<(), RequestError> {
    if text.len() > bounds.max_text_bytes {
        return Err(RequestError::TooLong { what, sent: text.len(), max: bounds.max_text_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Descriptor<'static> = Descriptor {
        entries: &[Entry { key: "k", value: "v" }],
        limit: None,
        hits_addend: None,
        is_negative_hits: false,
    };

    #[test]
    fn hits_default_to_the_request_and_then_to_one() {
        let own = Descriptor { hits_addend: Some(0), ..PLAIN };
        let back = Descriptor { is_negative_hits: true, ..PLAIN };
        assert_eq!(PLAIN.hits(0), 1);
        assert_eq!(PLAIN.hits(7), 7);
        assert_eq!(own.hits(7), 0);
        assert_eq!(back.hits(7), -7);
        assert_eq!(Descriptor { hits_addend: Some(3), ..back }.hits(7), -3);
    }

    #[test]
    fn every_bound_accepts_its_last_value() {
        let bounds = RequestBounds { max_descriptors: 2, max_entries: 1, max_text_bytes: 3 };
        let check = |domain: &str, descriptors: &[Descriptor<'_>]| {
            Request {
                domain,
                descriptors,
                hits_addend: 0,
                timeout: None,
                trace: TraceContext::default(),
                must_decide: None,
            }
            .validate(&bounds)
        };
        let entry = |key, value| [Entry { key, value }];
        assert_eq!(check("d", &[PLAIN, PLAIN]), Ok(()));
        assert_eq!(check("", &[PLAIN]), Err(RequestError::EmptyDomain));
        assert_eq!(check("d", &[]), Err(RequestError::NoDescriptors));
        assert!(matches!(check("d", &[PLAIN; 3]), Err(RequestError::TooManyDescriptors { .. })));
        assert!(matches!(check("dddd", &[PLAIN]), Err(RequestError::TooLong { .. })));
        let two = [PLAIN.entries[0]; 2];
        let wide = Descriptor { entries: &two, ..PLAIN };
        assert!(matches!(check("d", &[wide]), Err(RequestError::TooManyEntries { .. })));
        let empty_key = entry("", "v");
        let nameless = Descriptor { entries: &empty_key, ..PLAIN };
        assert_eq!(check("d", &[PLAIN, nameless]), Err(RequestError::EmptyKey { index: 1 }));
        let long = entry("k", "vvvv");
        assert!(matches!(
            check("d", &[Descriptor { entries: &long, ..PLAIN }]),
            Err(RequestError::TooLong { .. })
        ));
        let last = Descriptor { hits_addend: Some(HITS_END - 1), ..PLAIN };
        assert_eq!(check("d", &[last]), Ok(()));
        let huge = Descriptor { hits_addend: Some(HITS_END), ..PLAIN };
        assert_eq!(
            check("d", &[huge]),
            Err(RequestError::TooManyHits { index: 0, sent: HITS_END })
        );
        let none = Descriptor { entries: &[], ..PLAIN };
        assert_eq!(check("d", &[none]), Ok(()), "a descriptor without entries matches no rule");
    }
}
