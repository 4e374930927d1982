//! The body of a call: encoded once, with places for the digits of the key's number.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::plan::{PLACE, Plan};
use crate::proto::{Entry, RateLimitDescriptor, RateLimitRequest};

/// Room taken at once for the bodies of many calls.
const CHUNK: usize = 64 * 1024;

/// Makes bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    /// A gRPC frame: flag, length, message.
    frame: Vec<u8>,
    /// Where the digits stand, all of one number after those of another.
    places: Vec<usize>,
    /// Digits of a number.
    width: usize,
    room: BytesMut,
}

impl Bodies {
    pub(super) fn new(plan: &Plan) -> Bodies {
        let width = (plan.keys - 1).max(1).ilog10() as usize + 1;
        let frame = frame(plan, &"0".repeat(width), plan.hits);
        // What depends on the number is what differs with it.
        let other = self::frame(plan, &"1".repeat(width), plan.hits);
        let places = (0..frame.len()).filter(|at| frame[*at] != other[*at]).collect();
        Bodies { frame, places, width, room: BytesMut::new() }
    }

    /// The body of a call about key `number`.
    pub(super) fn of(&mut self, number: u64) -> Bytes {
        if self.room.capacity() < self.frame.len() {
            self.room.reserve(CHUNK.max(self.frame.len()));
        }
        self.room.put_slice(&self.frame);
        for places in self.places.chunks(self.width) {
            let mut rest = number;
            for place in places.iter().rev() {
                self.room[*place] = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        self.room.split().freeze()
    }
}

/// The frame of a call that takes nothing.
pub(super) fn peek(plan: &Plan) -> Bytes {
    frame(plan, "0", Some(0)).into()
}

fn frame(plan: &Plan, number: &str, hits: Option<u64>) -> Vec<u8> {
    let entry = |(key, value): &(String, String)| Entry {
        key: key.clone(),
        value: value.replace(PLACE, number),
    };
    let descriptor = |entries: &Vec<(String, String)>| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        hits_addend: hits,
        ..RateLimitDescriptor::default()
    };
    let message = RateLimitRequest {
        domain: plan.domain.clone(),
        descriptors: plan.descriptors.iter().map(descriptor).collect(),
        ..RateLimitRequest::default()
    };
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend(length.to_be_bytes());
    message.encode(&mut frame).expect("a Vec takes all");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patched_body_is_the_message_with_the_number_in_all_its_places() {
        let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let descriptors = vec![
            vec![entry("user", "u{n}-{n}{n}"), entry("plan", "0001")],
            vec![entry("n", "{n}")],
        ];
        let plan = Plan { hits: Some(3), ..Plan::new("d0", descriptors, 10_000) };
        let mut bodies = Bodies::new(&plan);
        for number in [0, 7, 1_234, 9_999] {
            let digits = format!("{number:04}");
            assert_eq!(bodies.of(number), frame(&plan, &digits, Some(3)));
            let message = RateLimitRequest::decode(&bodies.of(number)[5..]).unwrap();
            let [first, second] = &message.descriptors[..] else { panic!("two descriptors") };
            assert_eq!(first.entries[0].value, format!("u{digits}-{digits}{digits}"));
            assert_eq!(first.entries[1].value, "0001");
            assert_eq!((&*second.entries[0].value, second.hits_addend), (&*digits, Some(3)));
        }
    }

    #[test]
    fn one_key_needs_no_place() {
        let plan = Plan::new("d", vec![vec![("a".into(), "b".into())]], 1);
        assert_eq!(Bodies::new(&plan).of(0), frame(&plan, "", None));
    }
}
