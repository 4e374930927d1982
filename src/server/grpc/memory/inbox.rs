//! The request of a streaming call, which is read as it arrives.
//!
//! tonic reads a request only while nothing of the response waits. Until then the connection would keep
//! up to a window of data. The inbox takes the data, and rejects more than [`SMALL_REQUEST_MAX`] bytes in
//! all.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};

use crate::server::grpc::body_error::BodyError;
use crate::server::grpc::status::{GrpcCode, GrpcStatus};

/// Largest request of health and reflection, in bytes. They have only a few names: the service to
/// watch, or the symbols to look up.
pub(in crate::server::grpc) const SMALL_REQUEST_MAX: usize = 4096;

/// The request of one call. Clones share it.
#[derive(Clone, Default)]
pub(in crate::server::grpc) struct RequestInbox(Arc<Mutex<InboxState>>);

/// Ends the request of a call when it is dropped. tonic may read in a task that outlives the call.
pub(in crate::server::grpc) struct EndOnDrop(RequestInbox);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Ok(()));
    }
}

#[derive(Default)]
struct InboxState {
    /// What was received and not yet taken.
    data: BytesMut,
    /// Bytes received in all.
    received: usize,
    /// Present when no more data comes.
    end: Option<Result<(), GrpcStatus>>,
    reader: Option<Waker>,
}

impl RequestInbox {
    /// A guard that ends the request when the call ends.
    pub(in crate::server::grpc) fn end_on_drop(&self) -> EndOnDrop {
        EndOnDrop(self.clone())
    }

    /// Receives `body` to its end. `refused` is called if it is too large; the rest is then read and
    /// dropped. Never returns.
    pub(in crate::server::grpc) async fn fill<B>(
        &self,
        mut body: B,
        refused: impl Fn(),
    ) -> Infallible
    where
        B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin,
    {
        let mut is_refused = false;
        let end = loop {
            match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                None => break Ok(()),
                Some(Err(error)) => {
                    let error: BodyError = error.into();
                    break Err(error.into());
                }
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if let Err(too_large) = self.receive(&data)
                        && !std::mem::replace(&mut is_refused, true)
                    {
                        refused();
                        self.end(Err(too_large));
                    }
                }
            }
        };
        drop(body);
        self.end(end);
        pending().await
    }

    /// Ends the request, unless it has ended.
    fn end(&self, end: Result<(), GrpcStatus>) {
        self.change(|state| state.end = state.end.take().or(Some(end)));
    }

    fn receive(&self, data: &[u8]) -> Result<(), GrpcStatus> {
        self.change(|state| {
            state.received += data.len();
            if state.received > SMALL_REQUEST_MAX {
                let message =
                    format!("a streaming call may send at most {SMALL_REQUEST_MAX} bytes");
                return Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message));
            }
            state.data.extend_from_slice(data);
            Ok(())
        })
    }

    /// Changes the state, and wakes the reader.
    fn change<T>(&self, act: impl FnOnce(&mut InboxState) -> T) -> T {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let output = act(&mut state);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        output
    }
}

impl Body for RequestInbox {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.data.is_empty() {
            let data = std::mem::take(&mut state.data).freeze();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match &state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(status)) => Poll::Ready(Some(Err(BodyError::Refused(status.clone())))),
            None => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::cell::Cell;

    use futures_util::{FutureExt, StreamExt, stream};

    /// A body of pieces that are ready, with an end or without one.
    struct ReadyPieces(Vec<usize>, bool);

    impl Body for ReadyPieces {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            match self.0.pop() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(vec![b'x'; bytes].into())))),
                None if self.1 => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    /// What a reader gets after `pieces` were received: the bytes, and whether there is more.
    fn read(pieces: Vec<usize>, ends: bool) -> (Result<usize, GrpcCode>, bool, u32) {
        let (inbox, refused) = (RequestInbox::default(), Cell::new(0));
        let filled = inbox.fill(ReadyPieces(pieces, ends), || refused.set(refused.get() + 1));
        assert!(filled.now_or_never().is_none(), "it never returns");
        let mut body = inbox.clone();
        let frames = stream::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let (mut frames, mut read) = (frames.boxed_local(), Ok(0));
        let has_more = loop {
            match frames.next().now_or_never() {
                None => break true,
                Some(None) => break false,
                Some(Some(Ok(frame))) => {
                    let bytes = frame.into_data().map_or(0, |data| data.len());
                    read = read.map(|before| before + bytes);
                }
                Some(Some(Err(error))) => {
                    read = Err(GrpcStatus::from(error).code);
                    break false;
                }
            }
        };
        drop(frames);
        (read, has_more, refused.get())
    }

    #[test]
    fn a_request_is_received_whether_or_not_it_is_read() {
        assert_eq!(read(vec![], false), (Ok(0), true, 0));
        assert_eq!(read(vec![], true), (Ok(0), false, 0));
        assert_eq!(read(vec![7, 0, 3], false), (Ok(10), true, 0));
        assert_eq!(read(vec![7, 3], true), (Ok(10), false, 0));
        assert_eq!(read(vec![1; SMALL_REQUEST_MAX], true), (Ok(SMALL_REQUEST_MAX), false, 0));
    }

    #[test]
    fn a_refused_request_is_read_to_its_end() {
        let mut pieces = ReadyPieces(vec![SMALL_REQUEST_MAX; 9], true);
        let inbox = RequestInbox::default();
        assert!(inbox.fill(&mut pieces, || ()).now_or_never().is_none());
        assert_eq!(pieces.0.len(), 0);
    }

    #[test]
    fn a_request_ends_with_its_call() {
        let inbox = RequestInbox::default();
        let mut body = inbox.clone();
        let mut next = || poll_fn(|context| Pin::new(&mut body).poll_frame(context)).now_or_never();
        let call = inbox.end_on_drop();
        assert!(next().is_none());
        drop(call);
        assert!(next().is_some_and(|frame| frame.is_none()));
    }

    #[test]
    fn a_request_that_is_too_large_is_refused_once() {
        let refused = (Err(GrpcCode::ResourceExhausted), false, 1);
        assert_eq!(read(vec![SMALL_REQUEST_MAX + 1], true), refused);
        assert_eq!(read(vec![1; SMALL_REQUEST_MAX + 1], false), refused);
    }
}
