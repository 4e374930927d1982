//! The gRPC messages in one direction of an HTTP/2 connection.

use std::collections::HashMap;

/// What a client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of the head of a frame.
const HEAD: usize = 9;
/// The type of DATA frames, and their flag for padding.
const DATA: u8 = 0;
const PADDED: u8 = 8;

/// The bytes that are no whole message yet.
#[derive(Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// The DATA of each stream, without the messages that were read.
    streams: HashMap<u32, Vec<u8>>,
}

impl Frames {
    /// Adds bytes of the connection. Returns the messages that they end, or what is wrong with them.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.bytes.extend(bytes);
        let mut messages = Vec::new();
        if let Some(rest) = self.bytes.strip_prefix(PREFACE) {
            self.bytes = rest.to_vec();
        } else if PREFACE.starts_with(&self.bytes) {
            return Ok(messages);
        }
        while let Some(end) = self.frame_end() {
            let rest = self.bytes.split_off(end);
            let frame = std::mem::replace(&mut self.bytes, rest);
            if frame[3] == DATA {
                self.data(&frame, &mut messages)?;
            }
        }
        Ok(messages)
    }

    /// The end of the first frame, if all of it has arrived.
    fn frame_end(&self) -> Option<usize> {
        let head = self.bytes.get(..HEAD)?;
        let end = HEAD + number(&head[..3]);
        (self.bytes.len() >= end).then_some(end)
    }

    fn data(&mut self, frame: &[u8], messages: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let mut data = &frame[HEAD..];
        if frame[4] & PADDED != 0 {
            let (&padding, rest) = data.split_first().ok_or("a padded frame without a length")?;
            let kept = rest.len().checked_sub(padding.into());
            data = &rest[..kept.ok_or("more padding than data")?];
        }
        let stream = self.streams.entry(number(&frame[5..HEAD]) as u32).or_default();
        stream.extend(data);
        // A message is a flag for compression, its length in four bytes, and itself.
        while let Some(head) = stream.get(..5) {
            if head[0] != 0 {
                return Err("a compressed message".to_owned());
            }
            let end = 5 + number(&head[1..]);
            if stream.len() < end {
                break;
            }
            let message: Vec<u8> = stream.drain(..end).skip(5).collect();
            messages.push(message);
        }
        Ok(())
    }
}

/// A number in network byte order.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| (number << 8) | usize::from(*byte))
}

#[test]
fn messages_are_read_from_any_pieces() {
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        let length = payload.len() as u8;
        [&[0, 0, length, kind, flags, 0, 0, 0, 1][..], payload].concat()
    };
    let connection = [
        PREFACE.to_vec(),
        frame(4, 0, &[0; 6]),
        frame(DATA, 0, &[0, 0, 0, 0, 3, b'a']),
        frame(DATA, PADDED, &[2, b'b', b'c', 0, 0]),
        frame(DATA, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, b'd']),
    ]
    .concat();
    for size in 1..connection.len() {
        let mut frames = Frames::default();
        let read = connection.chunks(size).flat_map(|piece| frames.read(piece).expect("valid"));
        assert_eq!(read.collect::<Vec<_>>(), [b"abc".to_vec(), Vec::new(), b"d".to_vec()]);
    }
    let compressed = frame(DATA, 0, &[1, 0, 0, 0, 0]);
    assert!(Frames::default().read(&compressed).is_err());
}
