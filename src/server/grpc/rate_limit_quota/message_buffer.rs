//! Cuts what a stream receives into its messages.

use bytes::{Buf, Bytes, BytesMut};

use crate::server::grpc::framing::{COMPRESSED, PREFIX_BYTES, prefix};
use crate::server::grpc::status::{GrpcCode, GrpcStatus};

/// An empty buffer keeps at most this many bytes.
const KEPT_BYTES: usize = 4096;

/// What a stream has received and not read.
pub(super) struct MessageBuffer {
    data: BytesMut,
    /// Largest message in bytes.
    max: usize,
}

/// The status of a stream that ends at a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadMessage(pub(super) GrpcStatus);

impl MessageBuffer {
    /// An empty buffer for messages of at most `max` bytes.
    pub(super) fn new(max: usize) -> MessageBuffer {
        MessageBuffer { data: BytesMut::new(), max }
    }

    /// Adds a copy of `piece`.
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.data.extend_from_slice(piece);
    }

    /// Whether [`take`](Self::take) returns a message or an error.
    pub(super) fn is_ready(&self) -> bool {
        prefix(&self.data).is_some_and(|(flags, length)| {
            flags != 0 || length > self.max || self.data.len() >= PREFIX_BYTES + length
        })
    }

    /// Removes the first message; `None` if it is incomplete.
    pub(super) fn take(&mut self) -> Result<Option<Bytes>, BadMessage> {
        let Some((flags, length)) = prefix(&self.data) else { return Ok(None) };
        if flags == COMPRESSED {
            let message = "compressed reports are not supported";
            return Err(BadMessage(GrpcStatus::new(GrpcCode::Unimplemented, message)));
        }
        if flags != 0 {
            let message = format!("a message has the unknown flag {flags}");
            return Err(BadMessage(GrpcStatus::new(GrpcCode::InvalidArgument, message)));
        }
        if length > self.max {
            let message = format!(
                "a report of {length} bytes; the maximum is {} (rlqs.max_message_bytes)",
                self.max
            );
            return Err(BadMessage(GrpcStatus::new(GrpcCode::ResourceExhausted, message)));
        }
        if self.data.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.data.advance(PREFIX_BYTES);
        // A copy: a part of the buffer would keep all of it.
        let message = Bytes::copy_from_slice(&self.data[..length]);
        self.data.advance(length);
        if self.data.is_empty() && self.data.capacity() > KEPT_BYTES {
            self.data = BytesMut::new();
        }
        Ok(Some(message))
    }

    /// Whether nothing is left, not even a part of a message.
    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Bytes that the buffer takes.
    pub(super) fn bytes(&self) -> usize {
        self.data.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn framed(flags: u8, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[flags], &length[..], message].concat()
    }

    proptest! {
        /// Messages come out as they went in, wherever the stream was cut.
        #[test]
        fn cuts_do_not_matter(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6),
            cuts in prop::collection::vec(1..9_usize, 1..40),
        ) {
            let sent: Vec<u8> = messages.iter().flat_map(|message| framed(0, message)).collect();
            let (mut buffer, mut received, mut rest) = (MessageBuffer::new(20), vec![], &sent[..]);
            for size in cuts.into_iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at(size.min(rest.len()));
                rest = after;
                buffer.add(piece);
                prop_assert!(buffer.data.len() <= PREFIX_BYTES + 20 + 8);
                loop {
                    let is_ready = buffer.is_ready();
                    let message = buffer.take().unwrap();
                    prop_assert_eq!(is_ready, message.is_some());
                    let Some(message) = message else { break };
                    received.push(message.to_vec());
                }
            }
            prop_assert_eq!(received, messages);
            prop_assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_bad_prefix_is_an_error_at_once() {
        let too_large = framed(0, &[7; 21]);
        let table = [
            (&framed(1, &[7])[..5], GrpcCode::Unimplemented, "compressed reports"),
            (&framed(2, &[7])[..5], GrpcCode::InvalidArgument, "flag 2"),
            (&framed(255, &[])[..], GrpcCode::InvalidArgument, "flag 255"),
            (&too_large[..5], GrpcCode::ResourceExhausted, "21 bytes; the maximum is 20"),
            (&[0, 255, 255, 255, 255], GrpcCode::ResourceExhausted, "4294967295"),
        ];
        for (bytes, code, text) in table {
            let mut buffer = MessageBuffer::new(20);
            buffer.add(&bytes[..4]);
            assert!(!buffer.is_ready(), "{bytes:?}");
            assert_eq!(buffer.take(), Ok(None));
            buffer.add(&bytes[4..]);
            assert!(buffer.is_ready(), "{bytes:?}");
            let BadMessage(status) = buffer.take().unwrap_err();
            assert_eq!(status.code, code);
            assert!(status.message.contains(text), "{}", status.message);
        }
    }

    #[test]
    fn an_empty_buffer_keeps_little() {
        let mut buffer = MessageBuffer::new(1 << 20);
        buffer.add(&framed(0, &[7; 100_000]));
        assert!(buffer.bytes() >= 100_000);
        assert_eq!(buffer.take().unwrap().map(|message| message.len()), Some(100_000));
        assert!(buffer.bytes() <= KEPT_BYTES, "{} bytes", buffer.bytes());
    }
}
