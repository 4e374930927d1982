//! From the protocol's request to a borrowed [`Request`]: two flat buffers, no text is copied.

use smallvec::SmallVec;

use crate::descriptor::{Bounds, Caller, Descriptor, Entry, Request, RequestError};
use crate::limit::{Override, Unit};
use crate::proto::{RateLimitDescriptor, RateLimitOverride, RateLimitRequest};

/// All entries of all descriptors, one after the other. Envoy sends few: the usual request fits inline.
pub(super) type Entries<'m> = SmallVec<[Entry<'m>; 8]>;

/// The descriptors, each borrowing its slice of the entries.
pub(super) type Descriptors<'m> = SmallVec<[Descriptor<'m>; 4]>;

/// The entries of `message`, flat.
pub(super) fn entries(message: &RateLimitRequest) -> Entries<'_> {
    message
        .descriptors
        .iter()
        .flat_map(|descriptor| &descriptor.entries)
        .map(|entry| Entry { key: &entry.key, value: &entry.value })
        .collect()
}

/// The descriptors of `message` over the slices of `entries`, which came from the same message.
pub(super) fn descriptors<'m>(
    message: &'m RateLimitRequest,
    mut entries: &'m [Entry<'m>],
) -> Result<Descriptors<'m>, RequestError> {
    let one = |(index, sent): (usize, &RateLimitDescriptor)| {
        let (own, rest) = entries.split_at(sent.entries.len());
        entries = rest;
        Ok(Descriptor {
            entries: own,
            limit: sent.limit.as_ref().map(|limit| limit_of(index, limit)).transpose()?,
            hits_addend: sent.hits_addend,
            is_negative_hits: sent.is_negative_hits,
        })
    };
    message.descriptors.iter().enumerate().map(one).collect()
}

/// The request over `descriptors`, refused when it is beyond `bounds`.
pub(super) fn request<'m>(
    message: &'m RateLimitRequest,
    descriptors: &'m [Descriptor<'m>],
    bounds: &Bounds,
) -> Result<Request<'m>, RequestError> {
    let (domain, hits_addend) = (message.domain.as_str(), message.hits_addend);
    let caller = Caller::default();
    let request = Request { domain, descriptors, hits_addend, patience: None, caller };
    request.validate(bounds)?;
    Ok(request)
}

fn limit_of(index: usize, sent: &RateLimitOverride) -> Result<Override, RequestError> {
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
    use crate::proto;

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
        let entries = entries(&message);
        let descriptors = descriptors(&message, &entries).unwrap();
        let request = request(&message, &descriptors, &Bounds::default()).unwrap();
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
    fn a_unit_number_is_the_protocols_and_any_other_is_refused_with_its_place() {
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
            let entries = entries(&message);
            let refusal = descriptors(&message, &entries).unwrap_err();
            assert_eq!(refusal, RequestError::UnknownUnit { index: 1, unit });
        }
    }
}
