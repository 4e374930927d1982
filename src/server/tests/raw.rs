//! Hand-written HTTP/2 frames, for clients that no library supports.

use std::net::SocketAddr;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::support::request;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// The reset reason of a stream that was not processed because too many are open.
pub(super) const REFUSED_STREAM: u32 = 7;
/// The GOAWAY reason of a client that sends excessive load.
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

/// An HTTP/2 frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The headers of a `ShouldRateLimit` call, in HPACK without the dynamic table.
pub(super) fn call_headers() -> Vec<u8> {
    headers_to("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
}

/// The headers of a call to `path`, in HPACK without the dynamic table.
pub(super) fn headers_to(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [
        vec![0x83, 0x86, 0x04],
        text(path),
        vec![0x0f, 0x10],
        text("application/grpc"),
        vec![0x00],
        text("te"),
        text("trailers"),
    ]
    .concat()
}

/// A complete call on stream number `stream`.
pub(super) fn call(stream: u32, domain: &str) -> Vec<u8> {
    let message = request(domain).encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], &message].concat();
    let headers = frame(HEADERS, END_HEADERS, stream, &call_headers());
    [headers, frame(DATA, END_STREAM, stream, &body)].concat()
}

/// `bytes` as gzip, in one stored block (RFC 1951, 3.2.4; RFC 1952): valid, but not smaller.
pub(super) fn stored_gzip(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    let crc = !bytes.iter().fold(u32::MAX, |crc, byte| {
        let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        (0..8).fold(crc ^ u32::from(*byte), bit)
    });
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    gzip.extend(length.to_le_bytes());
    gzip.extend((!length).to_le_bytes());
    gzip.extend(bytes);
    gzip.extend(crc.to_le_bytes());
    gzip.extend(u32::from(length).to_le_bytes());
    gzip
}

/// The stream numbers that a client may use, in order.
pub(super) fn streams() -> impl Iterator<Item = u32> {
    (0..).map(|index| 2 * index + 1)
}

/// A connection that has sent the HTTP/2 preface.
pub(super) struct Raw {
    pub(super) stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    /// Connects, and sends `settings`: pairs of a 16-bit identifier and a 32-bit value.
    pub(super) async fn connect(to: SocketAddr, settings: &[(u16, u32)]) -> Raw {
        Raw::over(TcpStream::connect(to).await.unwrap(), settings).await
    }

    /// Connects from the address 127.0.0.`host`.
    pub(super) async fn connect_from(host: u8, to: SocketAddr) -> Raw {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        Raw::over(socket.connect(to).await.unwrap(), &[]).await
    }

    pub(super) async fn over(stream: TcpStream, settings: &[(u16, u32)]) -> Raw {
        let mut raw = Raw { stream, read: Vec::new() };
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        let hello = frame(SETTINGS, 0, 0, &settings);
        assert!(raw.send(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &hello[..]].concat()).await);
        raw
    }

    /// Sends `bytes`. Returns false if the server has closed the connection.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// The next frame; `None` if the server has closed the connection.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let [a, b, c, kind, flags, s1, s2, s3, s4, rest @ ..] = &self.read[..] {
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if let Some(payload) = rest.get(..length) {
                    let stream = u32::from_be_bytes([*s1, *s2, *s3, *s4]);
                    let frame =
                        Frame { kind: *kind, flags: *flags, stream, payload: payload.to_vec() };
                    self.read.drain(..9 + length);
                    return Some(frame);
                }
            }
            match self.stream.read_buf(&mut self.read).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The reason of the GOAWAY, if the server sends one before it closes the connection.
    pub(super) async fn goaway_reason(&mut self) -> Option<u32> {
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                return Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()));
            }
        }
        None
    }

    /// Waits until the server has closed the connection.
    pub(super) async fn closed(&mut self) {
        while self.next().await.is_some() {}
    }
}
