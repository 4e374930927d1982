//! Tests of the receiver with the engine: frames in, calls and frames out.

use std::task::{Context, Waker};

use super::*;
use crate::frame;

mod errors;
mod properties;
mod windows;

/// The fields of a request, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<String>);

impl RequestHead for Fields {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.push(format!("{}={}", name.escape_ascii(), value.escape_ascii()));
    }

    fn memory(&self) -> usize {
        self.0.iter().map(String::len).sum()
    }
}

/// A frame that was sent: its kind, flags, stream and payload.
pub(super) type Sent = (u8, u8, u32, Vec<u8>);

/// The data of a call, and whether that is all; `None` if the call was reset.
type Arrived = Option<(Vec<u8>, bool)>;

/// A connection without a socket.
pub(super) struct Wire {
    pub(super) receiver: Receiver<Fields>,
    pub(super) engine: Engine,
}

impl Wire {
    /// A connection before its preface.
    pub(super) fn closed(limits: Limits) -> Wire {
        let receiver = Receiver::new(limits, Fields::default());
        Wire { receiver, engine: Engine::new(limits) }
    }

    /// A connection after its preface and settings, and the server's.
    pub(super) fn open(limits: Limits) -> Wire {
        let mut wire = Wire::closed(limits);
        wire.send(PREFACE).unwrap();
        wire.send(&frame(kind::SETTINGS, 0, 0, &[])).unwrap();
        wire.sent();
        wire
    }

    /// Receives `bytes` from the client. Returns the reason for which the connection ends.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        let received = self.receiver.receive(bytes, &mut self.engine, Instant::now);
        received.map_err(|error| error.reason().expect("a reason"))
    }

    /// The frames that were sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let (mut bytes, mut frames) = (self.engine.output().to_vec(), Vec::new());
        self.engine.advance_output(bytes.len());
        while let Some(header) = FrameHeader::read(&bytes) {
            let payload = bytes[HEADER_BYTES..HEADER_BYTES + header.length].to_vec();
            bytes.drain(..HEADER_BYTES + header.length);
            frames.push((header.kind, header.flags, header.stream, payload));
        }
        assert!(bytes.is_empty(), "whole frames");
        frames
    }

    /// The kinds and streams of the frames that were sent since the last call.
    pub(super) fn kinds(&mut self) -> Vec<(u8, u32)> {
        self.sent().into_iter().map(|(kind, _, stream, _)| (kind, stream)).collect()
    }

    /// The next call: its key, its fields, and what has arrived of its body.
    pub(super) fn accept(&mut self) -> Option<(StreamKey, Fields, Arrived)> {
        let (key, fields) = self.receiver.next_arrived()?;
        let body = self.engine.accept(key);
        Some((key, fields, body))
    }

    /// The bytes in memory.
    pub(super) fn memory(&self) -> usize {
        self.receiver.memory() + self.engine.memory()
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, kind, flags, stream, payload);
    out
}

/// The header block of a valid request: POST, http, `/x`, and authority `a`.
pub(super) const REQUEST: [u8; 9] = [0x83, 0x86, 0x04, 2, b'/', b'x', 0x01, 1, b'a'];

pub(super) const END: u8 = flag::END_STREAM | flag::END_HEADERS;

pub(super) fn request(stream: u32, flags: u8) -> Vec<u8> {
    frame(kind::HEADERS, flags | flag::END_HEADERS, stream, &REQUEST)
}

pub(super) fn data(stream: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, stream, data)
}

pub(super) fn no_waker() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

#[test]
fn a_call_is_received_and_answered() {
    let mut wire = Wire::open(Limits::default());
    let call = [request(1, 0), data(1, flag::END_STREAM, b"hello")].concat();
    wire.send(&call).unwrap();
    let (key, fields, body) = wire.accept().unwrap();
    let expected = [":method=POST", ":scheme=http", ":path=/x", ":authority=a"];
    assert_eq!(fields.0, expected);
    assert_eq!(body, Some((b"hello".to_vec(), true)));
    assert!(wire.accept().is_none());
    let sent = wire.engine.send_message(key, 3, |out| out.extend_from_slice(b"yes"));
    assert_eq!(sent, Ok(true));
    let frames = wire.sent();
    assert_eq!(frames[0].0, kind::HEADERS);
    assert_eq!(frames[1], (kind::DATA, 0, 1, b"yes".to_vec()));
    assert_eq!((frames[2].0, frames[2].1), (kind::HEADERS, END));
    assert!(wire.engine.is_idle());
    let gone = wire.engine.send_message(key, 3, |_| panic!("it is closed"));
    assert_eq!(gone.unwrap_err().reason(), Some(Reason::CANCEL));
}

#[test]
fn a_repeated_block_has_the_same_fields() {
    let mut wire = Wire::open(Limits::default());
    // A block that stores a field, the same again, and one that depends on the table.
    let stores = [&REQUEST[..], &[0x40, 1, b'b', 1, b'1']].concat();
    let refers = [&REQUEST[..], &[0xbe]].concat();
    let restores = [&REQUEST[..], &[0x40, 1, b'c', 1, b'2']].concat();
    let blocks = [&REQUEST, &REQUEST, &stores[..], &refers, &refers, &restores, &refers, &stores];
    let last = ["", "", "b=1", "b=1", "b=1", "c=2", "c=2", "b=1"];
    for ((index, block), last) in blocks.into_iter().enumerate().zip(last) {
        let stream = 2 * index as u32 + 1;
        wire.send(&frame(kind::HEADERS, END, stream, block)).unwrap();
        let (_, fields, _) = wire.accept().unwrap();
        assert_eq!(fields.0.get(4).map_or("", String::as_str), last, "block {index}");
    }
}

#[test]
fn a_graceful_shutdown_takes_two_steps() {
    let mut wire = Wire::open(Limits::default());
    wire.send(&request(1, flag::END_STREAM)).unwrap();
    wire.engine.begin_shutdown();
    wire.engine.begin_shutdown();
    let sent = wire.sent();
    assert_eq!(sent[0], (kind::GOAWAY, 0, 0, vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
    let (ping, flags, _, payload) = sent[1].clone();
    assert_eq!((sent.len(), ping, flags), (2, kind::PING, 0));
    wire.send(&request(3, flag::END_STREAM)).unwrap();
    assert!(!wire.engine.is_final());
    wire.send(&frame(kind::PING, flag::ACK, 0, &payload)).unwrap();
    assert_eq!(wire.sent(), [(kind::GOAWAY, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    assert!(wire.engine.is_final());
    // Later streams are ignored, with their data.
    let late = [request(5, 0), data(5, 0, b"x"), request(5, flag::END_STREAM)].concat();
    wire.send(&late).unwrap();
    assert_eq!(wire.sent(), []);
    for _ in 0..2 {
        let (key, ..) = wire.accept().unwrap();
        assert_eq!(wire.engine.send_message(key, 0, |_| ()), Ok(true));
    }
    assert!(wire.accept().is_none());
    assert!(wire.engine.is_idle());
}

#[test]
fn a_call_that_is_dropped_is_reset() {
    for (responds, ends, reason) in [
        (false, false, Some(Reason::CANCEL)),
        (false, true, Some(Reason::CANCEL)),
        (true, false, Some(Reason::NO_ERROR)),
        (true, true, None),
    ] {
        let mut wire = Wire::open(Limits::default());
        wire.send(&request(1, if ends { flag::END_STREAM } else { 0 })).unwrap();
        let (key, ..) = wire.accept().unwrap();
        if responds {
            wire.engine.send_head(key, 200, std::iter::empty(), true).unwrap();
        }
        wire.sent();
        wire.engine.drop_call(key);
        let reset = reason.map(|reason| (kind::RST_STREAM, 0, 1, reason.0.to_be_bytes().to_vec()));
        assert_eq!(wire.sent(), Vec::from_iter(reset), "{responds} {ends}");
        assert!(wire.engine.is_idle());
        // Late frames of a stream that this server has reset are ignored.
        if reason.is_some() && !ends {
            wire.send(&[data(1, 0, b"late"), request(1, flag::END_STREAM)].concat()).unwrap();
            assert_eq!(wire.sent(), []);
        }
    }
}

#[test]
fn a_large_header_block_is_continued() {
    let mut wire = Wire::open(Limits::default());
    wire.send(&request(1, flag::END_STREAM)).unwrap();
    let (key, ..) = wire.accept().unwrap();
    let long = vec![b'x'; 40_000];
    let fields = [(&b"a"[..], &long[..])];
    wire.engine.send_head(key, 200, fields.into_iter(), true).unwrap();
    let sent = wire.sent();
    let shape: Vec<_> = sent.iter().map(|frame| (frame.0, frame.1, frame.3.len())).collect();
    assert_eq!(shape[0], (kind::HEADERS, flag::END_STREAM, PAYLOAD_MAX));
    assert_eq!(shape[1], (kind::CONTINUATION, 0, PAYLOAD_MAX));
    assert_eq!((shape[2].0, shape[2].1, shape.len()), (kind::CONTINUATION, flag::END_HEADERS, 3));
    let block: Vec<u8> = sent.into_iter().flat_map(|frame| frame.3).collect();
    let mut values = Vec::new();
    let visit = |_, _: &[u8], value: &[u8]| {
        values.push(value.len());
        true
    };
    Decoder::new().decode(&block, visit).unwrap();
    assert_eq!(values, [3, 40_000]);
}

/// Calls wait while the client does not read responses, and keep what they hold.
#[test]
fn calls_that_wait_have_memory() {
    const VALUE: usize = 3000;
    let mut wire = Wire::open(Limits::default());
    // `x` is stored, with its value. Each further block refers to it by one byte.
    let stored = [&[0x40, 1, b'x', 0x7f], &[0xb9, 0x16][..], &[b'v'; VALUE]].concat();
    wire.send(&frame(kind::HEADERS, END, 1, &[&REQUEST[..], &stored].concat())).unwrap();
    wire.accept().unwrap();
    let before = wire.memory();
    for stream in 1..=20 {
        let other = [&REQUEST[..], &[0xbe], &[0x0f, 0x2f, 1, b'0' + stream as u8 % 2]].concat();
        wire.send(&frame(kind::HEADERS, END, 2 * stream + 1, &other)).unwrap();
    }
    assert!(wire.memory() >= before + 20 * VALUE, "{} of {before} bytes", wire.memory());
    while wire.accept().is_some() {}
    // The last head is kept, for a block that is repeated.
    assert!(wire.memory() < before + 20_000, "{} of {before} bytes", wire.memory());
}
