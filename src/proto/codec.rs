//! The codec of gRPC messages: protobuf, with a look at the bytes before memory is taken for them.
//!
//! An empty descriptor is two bytes on the wire and more than fifty in memory, so a message within
//! the size bound could still take a hundred megabytes. Counting first costs nanoseconds.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Descriptors (or statuses) and entries in one message, together. Far more than any bound on
/// requests lets through; it only keeps a message's size in memory in proportion to its size.
const PARTS: usize = 65_536;

/// Calls are small: a kilobyte fits nearly all, where the default would take eight for each.
const BUFFER_BYTES: usize = 1024;
const YIELD_BYTES: usize = 32 * 1024;

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
}

/// Encodes `T` and decodes `U`, both messages of the rate-limit service.
#[derive(Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Codec(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Bounded<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        Bounded(ProstCodec::<T, U>::raw_decoder(buffers()))
    }
}

/// A decoder that refuses messages of too many parts.
#[derive(Debug)]
pub struct Bounded<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for Bounded<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The whole message lies in one piece; were it not, the decoder would see the rest.
        bound_parts(buffer.chunk())?;
        self.0.decode(buffer)
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// Decodes a message that has arrived by another way than gRPC, under the same bound.
pub(crate) fn decode<U: Message + Default>(bytes: &[u8]) -> Result<U, Status> {
    bound_parts(bytes)?;
    U::decode(bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn bound_parts(bytes: &[u8]) -> Result<(), Status> {
    if parts(bytes) > PARTS {
        let reason = format!("more than {PARTS} descriptors and entries in one message");
        return Err(Status::invalid_argument(reason));
    }
    Ok(())
}

/// How many repeated messages `bytes` holds: field 2 of both messages of the service (descriptors,
/// statuses), and field 1 in each of those (entries). Stops counting where the bytes are no message;
/// the decoder says what is wrong there, before it has taken memory for what follows.
fn parts(bytes: &[u8]) -> usize {
    let mut count = 0;
    each_text(bytes, 2, |descriptor| {
        count += 1;
        each_text(descriptor, 1, |_| count += 1);
    });
    count
}

/// Calls `found` with the content of every length-delimited field `number` of `message`.
pub(crate) fn each_text(mut message: &[u8], number: u32, mut found: impl FnMut(&[u8])) {
    while let Ok((field, wire_type)) = decode_key(&mut message) {
        let length = match wire_type {
            WireType::Varint => match decode_varint(&mut message) {
                Ok(_) => continue,
                Err(_) => return,
            },
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => match decode_varint(&mut message) {
                Ok(length) => usize::try_from(length).unwrap_or(usize::MAX),
                Err(_) => return,
            },
            // Groups are in no message of ours; what is inside them takes no memory.
            WireType::StartGroup | WireType::EndGroup => continue,
        };
        let Some((content, rest)) = message.split_at_checked(length) else { return };
        if field == number && wire_type == WireType::LengthDelimited {
            found(content);
        }
        message = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest};
    use proptest::prelude::*;

    fn request(entries: &[usize]) -> RateLimitRequest {
        let entry = || Entry { key: "key".into(), value: "\x0a\x00".into() };
        let descriptor = |count: &usize| RateLimitDescriptor {
            entries: (0..*count).map(|_| entry()).collect(),
            limit: Some(RateLimitOverride { requests_per_unit: 7, unit: 1 }),
            hits_addend: Some(300),
            is_negative_hits: true,
        };
        RateLimitRequest {
            domain: "\x12\x00".into(),
            descriptors: entries.iter().map(descriptor).collect(),
            hits_addend: 9,
        }
    }

    proptest! {
        #[test]
        fn every_descriptor_and_entry_counts_and_nothing_else(
            entries in prop::collection::vec(0_usize..5, 0..6),
        ) {
            let count = entries.len() + entries.iter().sum::<usize>();
            prop_assert_eq!(parts(&request(&entries).encode_to_vec()), count);
        }

        /// The count bounds what decoding makes of any bytes, else it would bound nothing.
        #[test]
        fn decoding_never_makes_more_than_was_counted(
            entries in prop::collection::vec(0_usize..5, 0..6),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut bytes = request(&entries).encode_to_vec();
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if let Ok(decoded) = RateLimitRequest::decode(&*bytes) {
                let made = decoded.descriptors.len()
                    + decoded.descriptors.iter().map(|one| one.entries.len()).sum::<usize>();
                prop_assert!(made <= parts(&bytes));
            }
        }
    }
}
