//! Reads and writes the frame of a gRPC message: one byte of flags, four bytes of length, the
//! message (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Body;
use prost::Message;

use super::body_error::BodyError;
use super::memory::call::CallMemory;
use super::status::{GrpcCode, GrpcStatus};

/// Bytes of flags and length before the message.
pub(super) const PREFIX_BYTES: usize = 5;

/// The flag of a compressed message. gRPC defines no other flag.
pub(super) const COMPRESSED: u8 = 1;

/// Reads the one message of a unary call, with its prefix.
///
/// Stops at a prefix that tonic rejects: an unknown flag, or a length over `max` bytes. A truncated
/// message is returned unchanged, and tonic rejects it. No message, or more than one, is an error,
/// and so is a budget without room for a call that waits.
///
/// A message that arrives in one piece is returned without a copy. While it arrives, `memory` also
/// holds the `head_bytes` of the call.
pub(super) async fn read_unary<B>(
    mut body: B,
    max: usize,
    (head_bytes, memory): (usize, &CallMemory<'_>),
) -> Result<Bytes, GrpcStatus>
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    let (mut first, mut more) = (Bytes::new(), BytesMut::new());
    while !body.is_end_stream() {
        let frame = poll_fn(|context| {
            if let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(context) {
                return Poll::Ready(Ok(frame));
            }
            more.extend_from_slice(&std::mem::take(&mut first));
            match memory.wait_for_client(head_bytes + more.capacity()) {
                Ok(()) => Poll::Pending,
                Err(full) => Poll::Ready(Err(full)),
            }
        });
        let Some(frame) = frame.await? else { break };
        let Ok(piece) = frame.map_err(Into::<BodyError>::into)?.into_data() else { break };
        if first.is_empty() && more.is_empty() {
            first = piece;
        } else {
            more.extend_from_slice(&std::mem::take(&mut first));
            more.extend_from_slice(&piece);
        }
        let received = if more.is_empty() { &first[..] } else { &more };
        let Some((flags, length)) = prefix(received) else { continue };
        if flags > COMPRESSED || length > max {
            break;
        }
        if received.len() > PREFIX_BYTES + length {
            let message = "more than one message in a call that takes one";
            return Err(GrpcStatus::new(GrpcCode::Unimplemented, message));
        }
    }
    let received = if more.is_empty() { first } else { more.freeze() };
    if received.is_empty() {
        let message = "no message in a call that takes one";
        return Err(GrpcStatus::new(GrpcCode::Unimplemented, message));
    }
    Ok(received)
}

/// The message in `framed` if the fast path can serve it: exactly one uncompressed message of at
/// most `max` bytes.
pub(super) fn fast_path_message(framed: &[u8], max: usize) -> Option<&[u8]> {
    let (flags, length) = prefix(framed)?;
    let message = &framed[PREFIX_BYTES..];
    (flags == 0 && length <= max && length == message.len()).then_some(message)
}

/// The flags and the length at the start of `bytes`; `None` for fewer than five bytes.
pub(super) fn prefix(bytes: &[u8]) -> Option<(u8, usize)> {
    let (&[flags, a, b, c, d], _) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    Some((flags, u32::from_be_bytes([a, b, c, d]) as usize))
}

/// Bytes of `message` with its prefix.
pub(super) fn framed_length(message: &impl Message) -> usize {
    PREFIX_BYTES + message.encoded_len()
}

/// Appends `message` with its prefix, which take `length` bytes.
pub(super) fn write_framed(message: &impl Message, length: usize, out: &mut Vec<u8>) {
    put_prefix(length - PREFIX_BYTES, out);
    message.encode(out).expect("a vector grows");
}

/// Encodes `message` with its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = framed_length(message);
    let mut bytes = Vec::with_capacity(length);
    write_framed(message, length, &mut bytes);
    bytes.into()
}

/// An encoded `message` with its prefix.
pub(super) fn framed_bytes(message: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + message.len());
    put_prefix(message.len(), &mut bytes);
    bytes.extend_from_slice(message);
    bytes.into()
}

/// Appends the prefix of a message of `length` bytes.
fn put_prefix(length: usize, out: &mut Vec<u8>) {
    out.put_u8(0);
    out.put_u32(u32::try_from(length).expect("a response is in proportion to its request"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::task::Context;

    use futures_util::FutureExt;
    use http_body::Frame;

    use crate::server::grpc::memory::budget::MemoryBudget;
    use crate::server::grpc::memory::call::CALL_BYTES;
    use crate::server::metrics::ServerMetrics;

    /// A body in pieces. Its end comes with the last piece, or separately if `ends_apart`. Before
    /// each piece it is pending once.
    struct Pieces {
        left: VecDeque<Bytes>,
        ends_apart: bool,
        has_waited: bool,
    }

    impl Pieces {
        fn new(left: VecDeque<Bytes>, ends_apart: bool) -> Pieces {
            Pieces { left, ends_apart, has_waited: false }
        }
    }

    /// The output of `read`, which needs no more than `polls` polls.
    fn finish<T>(read: impl Future<Output = T>, polls: usize) -> T {
        let mut read = Box::pin(read);
        (0..polls).find_map(|_| read.as_mut().now_or_never()).expect("all pieces are there")
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            self.has_waited = !self.has_waited;
            if self.has_waited {
                return Poll::Pending;
            }
            Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::data(piece))))
        }

        fn is_end_stream(&self) -> bool {
            self.left.is_empty() && !self.ends_apart
        }
    }

    /// How a call is handled: on the fast path, by tonic, or as an error.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Call {
        FastPath(Bytes),
        Tonic,
        Fails(GrpcCode),
    }

    /// How a call with `bytes` is handled. The result must not depend on where the bytes are cut.
    fn read(bytes: &[u8], max: usize) -> Call {
        let mut all = Vec::new();
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            all.push(vec![one.to_vec(), other.to_vec()]);
        }
        all.push(bytes.iter().map(|byte| vec![*byte]).collect());
        let metrics = Arc::<ServerMetrics>::default();
        let budget = MemoryBudget::new(1 << 20, metrics.clone());
        let read = all.into_iter().flat_map(|pieces| {
            [true, false].map(|ends_apart| {
                let left: VecDeque<_> = pieces.iter().cloned().map(Bytes::from).collect();
                let polls = left.len() + 2;
                let (body, memory) = (Pieces::new(left, ends_apart), CallMemory::alone(&budget));
                match finish(read_unary(body, max, (0, &memory)), polls) {
                    Ok(framed) => match fast_path_message(&framed, max) {
                        Some(message) => Call::FastPath(Bytes::copy_from_slice(message)),
                        None => Call::Tonic,
                    },
                    Err(status) => Call::Fails(status.code),
                }
            })
        });
        let read: Vec<_> = read.collect();
        assert_eq!(metrics.client_memory.waiting.held.get(), 0);
        assert!(read.windows(2).all(|two| two[0] == two[1]), "{bytes:?}: {read:?}");
        read[0].clone()
    }

    #[test]
    fn a_message_is_read_wherever_it_is_cut() {
        let fast = |message: &'static [u8]| Call::FastPath(Bytes::from_static(message));
        let fails = Call::Fails(GrpcCode::Unimplemented);
        let table: [(&[u8], Call); 14] = [
            (&[0, 0, 0, 0, 3, 7, 8, 9], fast(&[7, 8, 9])),
            (&[0, 0, 0, 0, 0], fast(&[])),
            (&[0, 0, 0, 0, 4, 1, 2, 3, 4], fast(&[1, 2, 3, 4])),
            (&[], fails.clone()),
            (&[0], Call::Tonic),
            (&[0, 0, 0, 0], Call::Tonic),
            (&[0, 0, 0, 0, 3, 7, 8], Call::Tonic),
            (&[0, 0, 0, 0, 1, 7, 0], fails.clone()),
            (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], fails.clone()),
            (&[1, 0, 0, 0, 1, 7, 0], fails),
            (&[0, 0, 0, 0, 5], Call::Tonic),
            (&[0, 255, 255, 255, 255, 1], Call::Tonic),
            (&[1, 0, 0, 0, 1, 7], Call::Tonic),
            (&[2, 0, 0, 0, 1, 7], Call::Tonic),
        ];
        for (bytes, expected) in table {
            assert_eq!(read(bytes, 4), expected, "{bytes:?}");
        }
    }

    #[test]
    fn an_incomplete_message_counts_until_it_is_read() {
        let metrics = Arc::<ServerMetrics>::default();
        let budget = MemoryBudget::new(1 << 20, metrics.clone());
        let pieces =
            || VecDeque::from([vec![0_u8, 0, 0, 0x20, 0], vec![7; 0x2000]].map(Bytes::from));
        let memory = CallMemory::alone(&budget);
        let body = Pieces::new(pieces(), false);
        let mut read = Box::pin(read_unary(body, 1 << 20, (300, &memory)));
        let waiting = || usize::try_from(metrics.client_memory.waiting.held.get()).unwrap();
        assert!(read.as_mut().now_or_never().is_none());
        assert_eq!(waiting(), CALL_BYTES + 300, "nothing has arrived");
        assert!(read.as_mut().now_or_never().is_none());
        assert!(waiting() >= CALL_BYTES + 305, "{} for a prefix", waiting());
        assert_eq!(read.as_mut().now_or_never().unwrap().unwrap().len(), 5 + 0x2000);
        drop(read);
        drop(memory);
        assert_eq!(waiting(), 0);

        let full = MemoryBudget::new(0, metrics.clone());
        let memory = CallMemory::alone(&full);
        let read = read_unary(Pieces::new(pieces(), false), 1 << 20, (0, &memory));
        let refused = read.now_or_never().expect("no wait").unwrap_err();
        assert_eq!(refused.code, GrpcCode::ResourceExhausted);
    }

    #[test]
    fn a_framed_message_is_read_back() {
        for text in ["", "abc", &"x".repeat(70_000)] {
            let framed = framed(&text.to_owned());
            assert_eq!(framed.len(), PREFIX_BYTES + text.to_owned().encoded_len());
            let budget = MemoryBudget::new(1 << 20, Arc::default());
            let memory = CallMemory::alone(&budget);
            let body = Pieces::new(VecDeque::from([framed]), false);
            let framed = finish(read_unary(body, 1 << 20, (0, &memory)), 2).unwrap();
            let message = fast_path_message(&framed, 1 << 20).unwrap();
            assert_eq!(String::decode(message).unwrap(), text);
        }
    }
}
