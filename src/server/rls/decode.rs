//! Decodes a `RateLimitRequest` into a borrowed [`Request`]: two flat buffers, no copied text.
//!
//! prost would copy every text into a `String`. The tests compare this decoder with prost's.
//!
//! An empty descriptor takes two bytes on the wire and over fifty in memory. A message with too
//! many parts is therefore rejected before it takes memory out of proportion to its size.

use std::str::{Utf8Error, from_utf8};

use smallvec::SmallVec;

use crate::descriptor::{Descriptor, Entry, Request, RequestBounds, RequestError, TraceContext};
use crate::limit::{Override, Unit};
use crate::proto::wire::{self, Malformed, Value};

/// Largest number of descriptors and entries in one message, together. It is far more than the
/// bounds of requests allow.
const PARTS_MAX: usize = 65_536;

/// A decoded request whose texts borrow from the message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message<'m> {
    domain: &'m str,
    hits_addend: u32,
    /// All entries of all descriptors in order. Envoy sends few, which fit inline.
    entries: SmallVec<[Entry<'m>; 8]>,
    descriptors: SmallVec<[WireDescriptor; 2]>,
}

/// A descriptor as it is on the wire, with the number of its entries.
#[derive(Debug, Default, PartialEq, Eq)]
struct WireDescriptor {
    entries: usize,
    limit: Option<WireLimit>,
    hits_addend: Option<u64>,
    is_negative_hits: bool,
}

/// A limit override as it is on the wire: its unit may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WireLimit {
    requests_per_unit: u32,
    unit: i32,
}

/// Descriptors, each with a borrowed slice of the entries.
pub(super) type Descriptors<'m> = SmallVec<[Descriptor<'m>; 2]>;

/// Why bytes are not a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum DecodeError {
    #[error("the message is not a RateLimitRequest: {0}")]
    Malformed(#[from] Malformed),
    #[error("the message is not a RateLimitRequest: `{0}` is of another type")]
    Type(&'static str),
    #[error("the message is not a RateLimitRequest: a string is not UTF-8: {0}")]
    Text(#[from] Utf8Error),
    #[error(
        "more than {PARTS_MAX} descriptors and entries in one message; split it into several \
         requests"
    )]
    Parts,
}

impl<'m> Message<'m> {
    /// Decodes the request in `bytes`.
    pub(super) fn read(mut bytes: &'m [u8]) -> Result<Message<'m>, DecodeError> {
        let mut message = Message::default();
        while let Some(field) = wire::next(&mut bytes)? {
            match field {
                (1, Value::Bytes(domain)) => message.domain = from_utf8(domain)?,
                (1, _) => return Err(DecodeError::Type("domain")),
                (2, Value::Bytes(descriptor)) => message.descriptor(descriptor)?,
                (2, _) => return Err(DecodeError::Type("descriptors")),
                // Other protobuf decoders also truncate a number that is too large.
                (3, Value::Number(hits)) => message.hits_addend = hits as u32,
                (3, _) => return Err(DecodeError::Type("hits_addend")),
                _ => {}
            }
        }
        Ok(message)
    }

    fn descriptor(&mut self, mut bytes: &'m [u8]) -> Result<(), DecodeError> {
        let (before, mut sent) = (self.entries.len(), WireDescriptor::default());
        self.check_parts(1)?;
        while let Some(field) = wire::next(&mut bytes)? {
            match field {
                (1, Value::Bytes(entry)) => {
                    self.check_parts(2)?;
                    self.entries.push(read_entry(entry)?);
                }
                (1, _) => return Err(DecodeError::Type("entries")),
                (2, Value::Bytes(limit)) => {
                    read_limit(sent.limit.get_or_insert_default(), limit)?;
                }
                (2, _) => return Err(DecodeError::Type("limit")),
                (3, Value::Bytes(hits)) => read_hits(sent.hits_addend.get_or_insert(0), hits)?,
                (3, _) => return Err(DecodeError::Type("hits_addend")),
                (4, Value::Number(truth)) => sent.is_negative_hits = truth != 0,
                (4, _) => return Err(DecodeError::Type("is_negative_hits")),
                _ => {}
            }
        }
        sent.entries = self.entries.len() - before;
        self.descriptors.push(sent);
        Ok(())
    }

    /// Fails if the message has more than [`PARTS_MAX`] parts: the complete ones and `more`.
    fn check_parts(&self, more: usize) -> Result<(), DecodeError> {
        let parts = self.descriptors.len() + self.entries.len() + more;
        if parts > PARTS_MAX { Err(DecodeError::Parts) } else { Ok(()) }
    }

    /// The descriptors with their slices of the entries. Fails if a limit has an unknown unit.
    pub(super) fn descriptors(&self) -> Result<Descriptors<'_>, RequestError> {
        let mut entries = &self.entries[..];
        let one = |(index, sent): (usize, &WireDescriptor)| {
            let (own, rest) = entries.split_at(sent.entries);
            entries = rest;
            Ok(Descriptor {
                entries: own,
                limit: sent.limit.map(|limit| limit_of(index, limit)).transpose()?,
                hits_addend: sent.hits_addend,
                is_negative_hits: sent.is_negative_hits,
            })
        };
        self.descriptors.iter().enumerate().map(one).collect()
    }

    /// The request with `descriptors`. Fails if it exceeds `bounds`.
    pub(super) fn request<'r>(
        &'r self,
        descriptors: &'r [Descriptor<'r>],
        bounds: &RequestBounds,
    ) -> Result<Request<'r>, RequestError> {
        let Message { domain, hits_addend, .. } = *self;
        let trace = TraceContext::default();
        let (timeout, must_decide) = (None, None);
        let request = Request { domain, descriptors, hits_addend, timeout, trace, must_decide };
        request.validate(bounds)?;
        Ok(request)
    }
}

fn read_entry(mut bytes: &[u8]) -> Result<Entry<'_>, DecodeError> {
    let mut entry = Entry { key: "", value: "" };
    while let Some(field) = wire::next(&mut bytes)? {
        match field {
            (1, Value::Bytes(key)) => entry.key = from_utf8(key)?,
            (1, _) => return Err(DecodeError::Type("key")),
            (2, Value::Bytes(value)) => entry.value = from_utf8(value)?,
            (2, _) => return Err(DecodeError::Type("value")),
            _ => {}
        }
    }
    Ok(entry)
}

/// Merges `bytes` into `limit`, which a message may contain in several parts. The last value of a
/// field wins.
fn read_limit(limit: &mut WireLimit, mut bytes: &[u8]) -> Result<(), DecodeError> {
    while let Some(field) = wire::next(&mut bytes)? {
        match field {
            (1, Value::Number(requests)) => limit.requests_per_unit = requests as u32,
            (1, _) => return Err(DecodeError::Type("requests_per_unit")),
            (2, Value::Number(unit)) => limit.unit = unit as i32,
            (2, _) => return Err(DecodeError::Type("unit")),
            _ => {}
        }
    }
    Ok(())
}

fn read_hits(hits: &mut u64, mut bytes: &[u8]) -> Result<(), DecodeError> {
    while let Some(field) = wire::next(&mut bytes)? {
        match field {
            (1, Value::Number(number)) => *hits = number,
            (1, _) => return Err(DecodeError::Type("hits_addend")),
            _ => {}
        }
    }
    Ok(())
}

fn limit_of(index: usize, sent: WireLimit) -> Result<Override, RequestError> {
    let unit = unit_of(sent.unit).ok_or(RequestError::UnknownUnit { index, unit: sent.unit })?;
    Ok(Override { requests_per_unit: sent.requests_per_unit, unit })
}

fn unit_of(number: i32) -> Option<Unit> {
    Some(match number {
        1 => Unit::Second,
        2 => Unit::Minute,
        3 => Unit::Hour,
        4 => Unit::Day,
        5 => Unit::Month,
        6 => Unit::Year,
        7 => Unit::Week,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message as _;

    use crate::proto::{self, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};

    fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
        let entry = |(key, value): &(&str, &str)| proto::Entry {
            key: key.to_string(),
            value: value.to_string(),
        };
        RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..Default::default() }
    }

    #[test]
    fn every_descriptor_keeps_its_own_entries_and_fields() {
        let message = RateLimitRequest {
            domain: "shop".into(),
            descriptors: vec![
                descriptor(&[("a", "1"), ("b", "")]),
                RateLimitDescriptor {
                    limit: Some(RateLimitOverride { requests_per_unit: 9, unit: 7 }),
                    hits_addend: Some(0),
                    ..descriptor(&[])
                },
                RateLimitDescriptor { is_negative_hits: true, ..descriptor(&[("c", "3")]) },
            ],
            hits_addend: 4,
        };
        let bytes = message.encode_to_vec();
        let message = Message::read(&bytes).unwrap();
        let descriptors = message.descriptors().unwrap();
        let request = message.request(&descriptors, &RequestBounds::default()).unwrap();
        assert_eq!((request.domain, request.hits_addend), ("shop", 4));
        let [first, second, third] = request.descriptors else { panic!("three descriptors") };
        assert_eq!(first.entries, [Entry { key: "a", value: "1" }, Entry { key: "b", value: "" }]);
        assert!(first.limit.is_none() && first.hits_addend.is_none() && !first.is_negative_hits);
        assert_eq!(second.entries, []);
        assert_eq!(second.limit, Some(Override { requests_per_unit: 9, unit: Unit::Week }));
        assert_eq!(second.hits_addend, Some(0));
        assert_eq!(third.entries, [Entry { key: "c", value: "3" }]);
        assert!(third.is_negative_hits);
    }

    #[test]
    fn an_unknown_unit_is_refused_with_its_index() {
        use Unit::*;
        let known = [Second, Minute, Hour, Day, Month, Year, Week];
        for (number, unit) in (1..).zip(known) {
            assert_eq!(unit_of(number), Some(unit));
        }
        for unit in [i32::MIN, -1, 0, 8, i32::MAX] {
            let limit = Some(RateLimitOverride { requests_per_unit: 1, unit });
            let message = RateLimitRequest {
                domain: "d".into(),
                descriptors: vec![
                    descriptor(&[("k", "v")]),
                    RateLimitDescriptor { limit, ..descriptor(&[("k", "v")]) },
                ],
                hits_addend: 0,
            };
            let bytes = message.encode_to_vec();
            let refusal = Message::read(&bytes).unwrap().descriptors().unwrap_err();
            assert_eq!(refusal, RequestError::UnknownUnit { index: 1, unit });
        }
    }

    #[test]
    fn a_message_with_too_many_parts_is_refused() {
        let entries = |count: usize| descriptor(&[("", "")].repeat(count));
        let refused = |descriptors: Vec<RateLimitDescriptor>| {
            let message = RateLimitRequest { descriptors, ..Default::default() };
            Message::read(&message.encode_to_vec()).is_err_and(|error| error == DecodeError::Parts)
        };
        assert!(!refused(vec![entries(0); PARTS_MAX]));
        assert!(refused(vec![entries(0); PARTS_MAX + 1]));
        assert!(!refused(vec![entries(PARTS_MAX - 1)]));
        assert!(refused(vec![entries(PARTS_MAX)]));
        assert!(refused(vec![entries(PARTS_MAX / 2), entries(PARTS_MAX / 2)]));
    }

    /// The message that prost decoded, converted for comparison.
    fn by_prost(message: &RateLimitRequest) -> Message<'_> {
        let sent = |descriptor: &RateLimitDescriptor| WireDescriptor {
            entries: descriptor.entries.len(),
            limit: descriptor.limit.map(|limit| WireLimit {
                requests_per_unit: limit.requests_per_unit,
                unit: limit.unit,
            }),
            hits_addend: descriptor.hits_addend,
            is_negative_hits: descriptor.is_negative_hits,
        };
        let entries = message.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        Message {
            domain: &message.domain,
            hits_addend: message.hits_addend,
            entries: entries.map(|one| Entry { key: &one.key, value: &one.value }).collect(),
            descriptors: message.descriptors.iter().map(sent).collect(),
        }
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z]{0,4}", "\\PC{0,3}", Just("\u{a}\0\u{12}\u{2}".to_owned())]
    }

    prop_compose! {
        fn any_descriptor()(
            entries in prop::collection::vec((text(), text()), 0..4),
            limit in prop::option::of((any::<u32>(), -2..9)),
            hits_addend in prop::option::of(any::<u64>()),
            is_negative_hits in any::<bool>(),
        ) -> RateLimitDescriptor {
            let entries = entries.into_iter().map(|(key, value)| proto::Entry { key, value });
            let limit = limit.map(|(requests_per_unit, unit)| {
                RateLimitOverride { requests_per_unit, unit }
            });
            RateLimitDescriptor {
                entries: entries.collect(), limit, hits_addend, is_negative_hits,
            }
        }
    }

    /// An encoded request with some bytes inserted, changed, cut off or repeated.
    fn mutated_request() -> impl Strategy<Value = Vec<u8>> {
        let request = (text(), prop::collection::vec(any_descriptor(), 0..3), any::<u32>());
        let request = request.prop_map(|(domain, descriptors, hits_addend)| {
            RateLimitRequest { domain, descriptors, hits_addend }.encode_to_vec()
        });
        let change = (any::<prop::sample::Index>(), 0..4, any::<u8>());
        (request, prop::collection::vec(change, 0..6)).prop_map(|(mut bytes, changes)| {
            for (index, change, byte) in changes {
                let at = index.index(bytes.len() + 1);
                match change {
                    0 => bytes.insert(at, byte),
                    1 if at < bytes.len() => bytes[at] = byte,
                    2 => bytes.truncate(at),
                    _ => bytes.extend_from_within(at..),
                }
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn decoder_equals_prost(bytes in mutated_request()) {
            let theirs = RateLimitRequest::decode(&bytes[..]);
            let ours = Message::read(&bytes);
            prop_assert_eq!(theirs.is_ok(), ours.is_ok(), "{:?}", theirs);
            if let (Ok(theirs), Ok(ours)) = (&theirs, &ours) {
                prop_assert_eq!(ours, &by_prost(theirs));
            }
        }
    }
}
