//! Messages of gRPC: a byte that says whether it is compressed, four of length, and the content
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>). A call has one each way.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Body;
use prost::Message;
use tonic::Status;
use tonic::codegen::StdError;

/// Bytes before the content.
const PREFIX: usize = 5;

/// The content of the one message in `body`, of at most `max` bytes.
pub(super) async fn read_unary<B>(mut body: B, max: usize) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    // Nearly every message comes in one piece, and stays where it is.
    let (mut first, mut more) = (Bytes::new(), BytesMut::new());
    while !body.is_end_stream() {
        let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await else {
            break;
        };
        let Ok(piece) = frame.map_err(|error| Status::from_error(error.into()))?.into_data() else {
            break;
        };
        if first.is_empty() {
            first = piece;
        } else {
            if more.is_empty() {
                more.extend_from_slice(&first);
            }
            more.extend_from_slice(&piece);
        }
        let seen = if more.is_empty() { &first[..] } else { &more };
        if let Some(length) = length(seen, max)?
            && seen.len() > PREFIX + length
        {
            return Err(Status::unimplemented("more than one message in a call that takes one"));
        }
    }
    let mut seen = if more.is_empty() { first } else { more.freeze() };
    match length(&seen, max)? {
        None if seen.is_empty() => {
            Err(Status::unimplemented("no message in a call that takes one"))
        }
        Some(length) if seen.len() == PREFIX + length => Ok(seen.split_off(PREFIX)),
        _ => Err(Status::internal("the call ended in the middle of its message")),
    }
}

/// The length of the content that `bytes` begin, once enough of them are there to tell.
fn length(bytes: &[u8], max: usize) -> Result<Option<usize>, Status> {
    let Some((&[compressed, a, b, c, d], _)) = bytes.split_first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if compressed != 0 {
        let reason = "the message is compressed, and no grpc-encoding says how: send it as it is";
        return Err(Status::internal(reason));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > max {
        let reason = format!("a message of {length} bytes; at most {max} are accepted");
        return Err(Status::out_of_range(reason));
    }
    Ok(Some(length))
}

/// `message` as it is sent.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("an answer is in proportion to its request"));
    message.encode(&mut bytes).expect("there is room for all of it");
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use futures_util::FutureExt;
    use http_body::Frame;
    use tonic::Code;

    /// A body in these pieces; the end is said apart, or with the last of them.
    struct Pieces {
        left: VecDeque<Bytes>,
        ends_apart: bool,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::data(piece))))
        }

        fn is_end_stream(&self) -> bool {
            self.left.is_empty() && !self.ends_apart
        }
    }

    /// What is read of `bytes` wherever they are cut in two, or into single bytes.
    fn read(bytes: &[u8], max: usize) -> Result<Bytes, Code> {
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
                read.expect("all is there").map_err(|status| status.code())
            })
        });
        let read: Vec<_> = read.collect();
        assert!(read.windows(2).all(|two| two[0] == two[1]), "{bytes:?}: {read:?}");
        read[0].clone()
    }

    #[test]
    fn one_message_is_read_wherever_it_is_cut_and_all_else_is_refused() {
        type Read = Result<&'static [u8], Code>;
        let table: [(&[u8], Read); 12] = [
            (&[0, 0, 0, 0, 3, 7, 8, 9], Ok(&[7, 8, 9])),
            (&[0, 0, 0, 0, 0], Ok(&[])),
            (&[0, 0, 0, 0, 4, 1, 2, 3, 4], Ok(&[1, 2, 3, 4])),
            (&[], Err(Code::Unimplemented)),
            (&[0], Err(Code::Internal)),
            (&[0, 0, 0, 0], Err(Code::Internal)),
            (&[0, 0, 0, 0, 3, 7, 8], Err(Code::Internal)),
            (&[0, 0, 0, 0, 1, 7, 0], Err(Code::Unimplemented)),
            (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Err(Code::Unimplemented)),
            (&[0, 0, 0, 0, 5], Err(Code::OutOfRange)),
            (&[0, 255, 255, 255, 255, 1], Err(Code::OutOfRange)),
            (&[1, 0, 0, 0, 1, 7], Err(Code::Internal)),
        ];
        for (bytes, expected) in table {
            assert_eq!(read(bytes, 4), expected.map(Bytes::copy_from_slice), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_framed_is_read() {
        for text in ["", "abc", &"x".repeat(70_000)] {
            let framed = framed(&text.to_owned());
            assert_eq!(framed.len(), PREFIX + text.to_owned().encoded_len());
            let left = VecDeque::from([framed]);
            let body = Pieces { left, ends_apart: false };
            let content = read_unary(body, 1 << 20).now_or_never().unwrap().unwrap();
            assert_eq!(String::decode(content).unwrap(), text);
        }
    }
}
