//! Serves a client that sends any bytes after the preface of an HTTP/2 connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_http2::{Call, Connection, Limits, Reason, RequestHead};

/// The preface, and empty settings.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Bytes of a short read, fewer than a frame header.
const SHORT: usize = 7;

/// The most bytes that a connection may hold: the window of its data twice, because vectors double, its
/// streams, and the rest.
const MEMORY_MAX: usize = 2 * WINDOW as usize + 16 * 1024 + 64 * 1024;

const WINDOW: u32 = 70_000;

const HEADER_BYTES: u32 = 2048;

/// The most bytes that are sent for a byte that was received, and in addition. A request of 10 bytes gets
/// a response of 70.
const SENT_PER_BYTE: usize = 8;
const SENT_MORE: usize = 1024;

/// Serves a client that sends `bytes`, and checks that the result does not depend on how they are split into
/// reads. Returns whether a call has arrived and the connection had no error.
pub fn frames(bytes: &[u8]) -> bool {
    // A call that is not served until the end: what is sent depends on the bytes alone.
    let [whole, short] = [usize::MAX, SHORT].map(|read_max| serve(bytes, read_max, false));
    assert!(whole == short, "the size of a read changes the result");
    let served = [usize::MAX, SHORT].map(|read_max| serve(bytes, read_max, true));
    served.iter().all(|served| served.calls > 0 && served.error.is_none())
}

/// What a client has got.
#[derive(PartialEq, Eq)]
struct Served {
    calls: usize,
    error: Option<Reason>,
    sent: Vec<u8>,
}

/// Serves `bytes` in reads of at most `read_max`, and responds to calls if `responds`.
fn serve(bytes: &[u8], read_max: usize, responds: bool) -> Served {
    let bytes = [OPENING, bytes].concat();
    let socket = Socket { unread: &bytes, read_max, sent: Vec::new() };
    let limits = Limits {
        window: WINDOW,
        max_concurrent_streams: 8,
        max_header_bytes: HEADER_BYTES,
        // More than an input has: time refills the budget, so the result would depend on it.
        max_control_frames: 10_000,
        max_pending_resets: 1000,
        ..Limits::default()
    };
    let mut connection = Connection::new(socket, limits, Fields::default());
    let mut context = Context::from_waker(Waker::noop());
    let (mut calls, mut open) = (0, Vec::<Call<Fields>>::new());
    let error = loop {
        match connection.poll_calls(&mut context) {
            Poll::Ready(Ok(true)) => {}
            Poll::Ready(Ok(false)) => break None,
            Poll::Ready(Err(error)) => break error.reason(),
            Poll::Pending => unreachable!("the socket is always ready"),
        }
        while let Some(call) = connection.next_call() {
            calls += 1;
            open.push(call);
        }
        if responds {
            open.retain_mut(|call| !is_over(call, &mut context));
        }
        assert!(connection.memory() <= MEMORY_MAX, "{} bytes", connection.memory());
    };
    for call in &mut open {
        assert!(call.responder.poll_reset(&mut context).is_ready(), "the connection has ended");
    }
    drop(open);
    let sent = connection.socket().sent.clone();
    assert!(sent.len() <= SENT_PER_BYTE * bytes.len() + SENT_MORE, "{} bytes sent", sent.len());
    Served { calls: if responds { calls } else { 0 }, error, sent }
}

/// Reads what has arrived of a call, and responds at its end. Returns whether it is over.
fn is_over(call: &mut Call<Fields>, context: &mut Context<'_>) -> bool {
    loop {
        match call.body.poll_data(context) {
            Poll::Pending => return false,
            Poll::Ready(Some(Ok(data))) => {
                assert!(!data.is_empty());
                call.body.release(data.len());
            }
            Poll::Ready(Some(Err(_))) => return true,
            Poll::Ready(None) => break,
        }
    }
    let message = b"\0\0\0\0\x02ok";
    let sent = call.responder.send_message(message.len(), |out| out.extend_from_slice(message));
    sent.unwrap_or(true)
}

/// The values of a request, whose fields must be valid, and together at most [`HEADER_BYTES`].
#[derive(Clone, Debug, Default)]
struct Fields(Vec<u8>);

impl RequestHead for Fields {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        assert!(!name.is_empty());
        assert!(!name.iter().any(|byte| byte.is_ascii_uppercase() || byte.is_ascii_control()));
        assert!(!value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
        self.0.extend_from_slice(value);
        assert!(self.0.len() <= HEADER_BYTES as usize);
    }

    fn memory(&self) -> usize {
        self.0.len()
    }
}

/// A socket that has `unread`, and is closed after that.
struct Socket<'b> {
    unread: &'b [u8],
    read_max: usize,
    sent: Vec<u8>,
}

impl AsyncRead for Socket<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = self.unread.len().min(self.read_max).min(buffer.remaining());
        let (read, rest) = self.unread.split_at(bytes);
        buffer.put_slice(read);
        self.unread = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.sent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
