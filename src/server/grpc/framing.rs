//! Reads and writes the frame of a gRPC message: one byte of flags, four bytes of length, the
//! message (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Body;
use prost::Message;

use super::body_error::BodyError;
use super::status::{GrpcCode, GrpcStatus};

/// Bytes of flags and length before the message.
const PREFIX: usize = 5;

/// The flag of a compressed message. gRPC defines no other flag.
const COMPRESSED: u8 = 1;

/// Reads the one message of a unary call, with its prefix.
///
/// Stops at a prefix that tonic rejects: an unknown flag, or a length over `max` bytes. A truncated
/// message is returned unchanged, and tonic rejects it. No message, or more than one, is an error.
pub(super) async fn read_unary<B>(mut body: B, max: usize) -> Result<Bytes, GrpcStatus>
where
    B: Body<Data = Bytes, Error = BodyError> + Unpin,
{
    // Nearly every message arrives in one piece, which is returned without a copy.
    let (mut first, mut more) = (Bytes::new(), BytesMut::new());
    while !body.is_end_stream() {
        let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await else {
            break;
        };
        let Ok(piece) = frame?.into_data() else { break };
        if first.is_empty() {
            first = piece;
        } else {
            if more.is_empty() {
                more.extend_from_slice(&first);
            }
            more.extend_from_slice(&piece);
        }
        let received = if more.is_empty() { &first[..] } else { &more };
        let Some((flags, length)) = prefix(received) else { continue };
        if flags > COMPRESSED || length > max {
            break;
        }
        if received.len() > PREFIX + length {
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
    let message = &framed[PREFIX..];
    (flags == 0 && length <= max && length == message.len()).then_some(message)
}

/// The flags and the length at the start of `bytes`; `None` for fewer than five bytes.
fn prefix(bytes: &[u8]) -> Option<(u8, usize)> {
    let (&[flags, a, b, c, d], _) = bytes.split_first_chunk::<PREFIX>()?;
    Some((flags, u32::from_be_bytes([a, b, c, d]) as usize))
}

/// Encodes `message` with its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("a response is in proportion to its request"));
    message.encode(&mut bytes).expect("there is room for all of it");
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::{Context, Poll};

    use futures_util::FutureExt;
    use http_body::Frame;

    /// A body in pieces. Its end comes with the last piece, or separately if `ends_apart`.
    struct Pieces {
        left: VecDeque<Bytes>,
        ends_apart: bool,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
        let read = all.into_iter().flat_map(|pieces| {
            [true, false].map(|ends_apart| {
                let left = pieces.iter().cloned().map(Bytes::from).collect();
                let read = read_unary(Pieces { left, ends_apart }, max).now_or_never();
                match read.expect("all pieces are there") {
                    Ok(framed) => match fast_path_message(&framed, max) {
                        Some(message) => Call::FastPath(Bytes::copy_from_slice(message)),
                        None => Call::Tonic,
                    },
                    Err(status) => Call::Fails(status.code),
                }
            })
        });
        let read: Vec<_> = read.collect();
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
    fn a_framed_message_is_read_back() {
        for text in ["", "abc", &"x".repeat(70_000)] {
            let framed = framed(&text.to_owned());
            assert_eq!(framed.len(), PREFIX + text.to_owned().encoded_len());
            let left = VecDeque::from([framed]);
            let body = Pieces { left, ends_apart: false };
            let framed = read_unary(body, 1 << 20).now_or_never().unwrap().unwrap();
            let message = fast_path_message(&framed, 1 << 20).unwrap();
            assert_eq!(String::decode(message).unwrap(), text);
        }
    }
}
