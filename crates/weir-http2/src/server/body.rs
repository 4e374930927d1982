//! The body of a request.

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::shared::SharedEngine;
use crate::Error;
use crate::streams::StreamKey;

/// The body of a request as it arrives. Trailers are checked and dropped.
#[derive(Debug)]
pub struct RequestBody {
    /// Data that had arrived when the call was accepted, if that was all.
    received: Bytes,
    /// `None` if all had arrived.
    stream: Option<(SharedEngine, StreamKey)>,
}

impl RequestBody {
    pub(super) fn received(data: Vec<u8>) -> RequestBody {
        RequestBody { received: data.into(), stream: None }
    }

    pub(super) fn arriving(engine: SharedEngine, key: StreamKey) -> RequestBody {
        RequestBody { received: Bytes::new(), stream: Some((engine, key)) }
    }

    /// The next data; `None` after the end. The data is a copy, and keeps no other memory.
    /// Fails if the stream was reset or the connection has ended.
    ///
    /// The client's flow-control windows stay closed for the data until
    /// [`release`](Self::release). That needs no call if all had arrived when the call was accepted.
    pub fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        if !self.received.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.received))));
        }
        let Some((engine, key)) = &self.stream else { return Poll::Ready(None) };
        let data = ready!(engine.lock().poll_body(*key, context));
        Poll::Ready(data.map(|data| data.map(Bytes::from)).transpose())
    }

    /// Opens the windows of the client by `bytes`, which were read.
    pub fn release(&mut self, bytes: usize) {
        if let Some((engine, key)) = &self.stream {
            engine.lock().release(*key, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Whether the body has ended and all of it was read.
    pub fn is_end(&self) -> bool {
        match &self.stream {
            None => self.received.is_empty(),
            Some((engine, key)) => engine.lock().is_body_read(*key),
        }
    }
}

/// What arrives after the body was dropped is dropped too.
impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some((engine, key)) = &self.stream {
            engine.lock().drop_body(*key);
        }
    }
}
