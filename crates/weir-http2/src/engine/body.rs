//! The bodies of requests: data that was received, and the windows of the client.

use std::task::{Context, Poll};

use super::{Engine, register};
use crate::Error;
use crate::frame;
use crate::streams::StreamKey;

impl Engine {
    /// Opens the window of the connection by `bytes`, and announces that when half of it is open.
    pub(super) fn release_connection(&mut self, bytes: u32) {
        self.unannounced += bytes;
        if self.unannounced >= self.limits.window / 2 && self.unannounced > 0 {
            let more = std::mem::take(&mut self.unannounced);
            self.receive_window += more;
            frame::write_window_update(&mut self.output, 0, more);
            self.wake_task();
        }
    }

    /// Opens the windows of the client by `bytes` of a body.
    pub(crate) fn release(&mut self, key: StreamKey, bytes: u32) {
        let window = self.limits.window;
        let Some(stream) = self.streams.get(key) else { return };
        let bytes = bytes.min(stream.unreleased);
        stream.unreleased -= bytes;
        stream.unannounced += bytes;
        if !stream.is_received && stream.unannounced >= window / 2 && stream.unannounced > 0 {
            let more = std::mem::take(&mut stream.unannounced);
            stream.receive_window += more;
            frame::write_window_update(&mut self.output, key.id, more);
            self.wake_task();
        }
        self.release_connection(bytes);
    }

    /// Gives a call to the application: its data, and whether that is all. `None` if the stream was
    /// reset before. The windows open again for complete data.
    pub(crate) fn accept(&mut self, key: StreamKey) -> Option<(Vec<u8>, bool)> {
        let stream = self.streams.get(key)?;
        stream.is_accepted = true;
        if !stream.is_received {
            return Some((Vec::new(), false));
        }
        let body = std::mem::take(&mut stream.body);
        let bytes = std::mem::take(&mut stream.unreleased);
        self.body_bytes -= body.capacity();
        self.release_connection(bytes);
        Some((body, true))
    }

    /// The data of a body that was received and not read; `None` after its end. The windows open again
    /// only by [`release`](Self::release).
    pub(crate) fn poll_body(
        &mut self,
        key: StreamKey,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Vec<u8>>, Error>> {
        let Some(stream) = self.streams.get(key) else {
            return Poll::Ready(Err(self.gone()));
        };
        if !stream.body.is_empty() {
            let body = std::mem::take(&mut stream.body);
            self.body_bytes -= body.capacity();
            return Poll::Ready(Ok(Some(body)));
        }
        if stream.is_received {
            return Poll::Ready(Ok(None));
        }
        register(&mut stream.reader, context);
        Poll::Pending
    }

    /// Whether a body has ended and all of it was read.
    pub(crate) fn is_body_read(&mut self, key: StreamKey) -> bool {
        self.streams.get(key).is_some_and(|stream| stream.is_received && stream.body.is_empty())
    }

    /// The application does not read the body any more. What arrives is dropped.
    pub(crate) fn drop_body(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.is_body_dropped = true;
        let (body, bytes) = (std::mem::take(&mut stream.body), stream.unreleased);
        self.body_bytes -= body.capacity();
        self.release(key, bytes);
    }
}
