//! The body of a call: encoded once, then copied with the digits of the key's number patched in.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use crate::messages::{DescriptorEntry, RateLimitDescriptor, RateLimitRequest};
use crate::plan::{PLACEHOLDER, Plan};

/// Bytes allocated at once, for the bodies of many calls.
const CHUNK_BYTES: usize = 64 * 1024;

/// An encoded request in which only the digits of the key change.
#[derive(Debug)]
pub(crate) struct BodyTemplate {
    /// A gRPC frame: flag, length, message.
    frame: Vec<u8>,
    /// Offsets of the digits; all digits of one number, then those of the next.
    digits: Vec<usize>,
    /// Digits per number.
    width: usize,
    chunk: BytesMut,
}

impl BodyTemplate {
    pub(crate) fn new(plan: &Plan) -> BodyTemplate {
        let width = (plan.keys - 1).max(1).ilog10() as usize + 1;
        let frame = encode(plan, &"0".repeat(width), plan.hits);
        // The digits are where two frames with different numbers differ.
        let other = encode(plan, &"1".repeat(width), plan.hits);
        let digits = (0..frame.len()).filter(|at| frame[*at] != other[*at]).collect();
        BodyTemplate { frame, digits, width, chunk: BytesMut::new() }
    }

    /// The body of a call for key `number`.
    pub(crate) fn for_key(&mut self, number: u64) -> Bytes {
        if self.chunk.capacity() < self.frame.len() {
            self.chunk.reserve(CHUNK_BYTES.max(self.frame.len()));
        }
        self.chunk.put_slice(&self.frame);
        for offsets in self.digits.chunks(self.width) {
            let mut rest = number;
            for offset in offsets.iter().rev() {
                self.chunk[*offset] = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        self.chunk.split().freeze()
    }
}

/// The body of a call that adds no hits.
pub(crate) fn peek(plan: &Plan) -> Bytes {
    encode(plan, "0", Some(0)).into()
}

fn encode(plan: &Plan, number: &str, hits: Option<u64>) -> Vec<u8> {
    let entry = |(key, value): &(String, String)| DescriptorEntry {
        key: key.clone(),
        value: value.replace(PLACEHOLDER, number),
    };
    let descriptor = |entries: &Vec<(String, String)>| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        hits_addend: hits,
    };
    let message = RateLimitRequest {
        domain: plan.domain.clone(),
        descriptors: plan.descriptors.iter().map(descriptor).collect(),
    };
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend(length.to_be_bytes());
    message.encode(&mut frame).expect("a Vec grows as needed");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_gets_the_number() {
        let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let descriptors = vec![
            vec![entry("user", "u{n}-{n}{n}"), entry("plan", "0001")],
            vec![entry("n", "{n}")],
        ];
        let plan = Plan { hits: Some(3), ..Plan::new("d0", descriptors, 10_000) };
        let mut template = BodyTemplate::new(&plan);
        for number in [0, 7, 1_234, 9_999] {
            let digits = format!("{number:04}");
            assert_eq!(template.for_key(number), encode(&plan, &digits, Some(3)));
            let message = RateLimitRequest::decode(&template.for_key(number)[5..]).unwrap();
            let [first, second] = &message.descriptors[..] else { panic!("two descriptors") };
            assert_eq!(first.entries[0].value, format!("u{digits}-{digits}{digits}"));
            assert_eq!(first.entries[1].value, "0001");
            assert_eq!((&*second.entries[0].value, second.hits_addend), (&*digits, Some(3)));
        }
    }

    #[test]
    fn one_key_needs_no_placeholder() {
        let plan = Plan::new("d", vec![vec![("a".into(), "b".into())]], 1);
        assert_eq!(BodyTemplate::new(&plan).for_key(0), encode(&plan, "", None));
    }
}
