//! Tests of the bound: blocks by hand, and a client that has the exact content of its table.

use super::*;

use proptest::prelude::*;

mod against_h2;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const FRAME_HEADER: usize = 9;

/// Sends a HEADERS frame of stream 1, whose payload arrives in pieces of `cut` bytes.
fn send(table: &mut HeaderTable, flags: u8, payload: &[u8], cut: usize) {
    table.begin_headers(FRAME_HEADER + payload.len(), payload.len(), flags, 1);
    assert!(payload.chunks(cut).all(|piece| table.read(piece)), "{payload:?}");
}

/// What h2 keeps after a HEADERS frame, which may be cut anywhere.
fn kept_by(flags: u8, payload: &[u8]) -> u64 {
    let kept = |cut| {
        let mut table = HeaderTable::default();
        send(&mut table, flags, payload, cut);
        table.kept_bytes()
    };
    let whole = kept(payload.len());
    assert!((1..payload.len()).all(|cut| kept(cut) == whole), "{payload:?}");
    whole
}

/// A stored path of one byte.
const STORED_PATH: [u8; 3] = [0x44, 1, b'/'];

#[test]
fn only_stored_slices_keep_their_buffer() {
    let raw = READ_BUFFER_BYTES;
    let table: &[(&[u8], u64)] = &[
        (&STORED_PATH, raw),
        (&[0x44, 0], raw),
        (&[0x44, 0x81, 0x63], HUFFMAN_BUFFER_BYTES),
        (&[0x41, 1, b'a'], raw),
        (&[0x46, 1, b'h'], raw),
        (&[0x40, 5, b':', b'p', b'a', b't', b'h', 1, b'/'], raw),
        (&[0x40, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 1, b'/'], raw),
        // Not stored, or nothing but an index or a size.
        (&[0x04, 1, b'/'], 0),
        (&[0x14, 1, b'/'], 0),
        (&[0x84], 0),
        (&[0x20], 0),
        (&[0x3f, 0xe1, 0x1f], 0),
        // Values that h2 copies.
        (&[0x42, 3, b'G', b'E', b'T'], 0),
        (&[0x5f, 1, b'x'], 0),
        (&[0x40, 1, b'x', 1, b'y'], 0),
    ];
    for (block, kept) in table {
        assert_eq!(kept_by(0, block), *kept, "{block:?}");
    }
}

/// h2 would read the value in Huffman codes a second time, as a stored path.
#[test]
fn a_field_without_a_name_is_refused() {
    for (kind, name) in [(0x00, 0), (0x10, 0), (0x40, 0), (0x00, 0x80), (0x40, 0x80)] {
        for value in [&[1, b'y'][..], &[0x83, 0x44, 1, b'/']] {
            let block = [&[0x83, kind, name], value].concat();
            for cut in 1..=block.len() {
                let mut table = HeaderTable::default();
                table.begin_headers(FRAME_HEADER + block.len(), block.len(), 0, 1);
                assert!(!block.chunks(cut).all(|piece| table.read(piece)), "{block:?}");
            }
        }
    }
}

#[test]
fn names_are_found_in_the_table() {
    // Index 62 is the newest entry, 63 the one before.
    let newest = [0x7e, 1, b'b'];
    let second = [0x7f, 0, 1, b'b'];
    let other = [0x40, 1, b'x', 1, b'y'];
    let two = 2 * READ_BUFFER_BYTES;
    assert_eq!(kept_by(0, &[&STORED_PATH[..], &newest].concat()), two);
    assert_eq!(kept_by(0, &[&STORED_PATH[..], &other, &newest].concat()), READ_BUFFER_BYTES);
    assert_eq!(kept_by(0, &[&STORED_PATH[..], &other, &second].concat()), two);
}

#[test]
fn padding_and_priority_are_no_headers() {
    let (path, none): ([u8; 3], [u8; 0]) = (STORED_PATH, []);
    let payload = |before: &[u8], after: &[u8]| -> Vec<u8> { [before, &path[..], after].concat() };
    assert_eq!(kept_by(PADDED, &payload(&[3], &path)), READ_BUFFER_BYTES);
    assert_eq!(kept_by(PADDED, &payload(&[200], &none)), 0, "more than there is");
    assert_eq!(kept_by(WITH_PRIORITY, &payload(&[0, 0, 0, 9, 16], &none)), READ_BUFFER_BYTES);
    assert_eq!(kept_by(WITH_PRIORITY, &payload(&[0, 0, 0, 1, 16], &none)), 0, "on itself");
    assert_eq!(kept_by(WITH_PRIORITY, &payload(&[0x80, 0, 0, 1, 16], &none)), 0, "exclusively");
    let both = PADDED | WITH_PRIORITY;
    assert_eq!(kept_by(both, &payload(&[1, 0, 0, 0, 9, 16], &[0])), READ_BUFFER_BYTES);
    assert_eq!(kept_by(both, &payload(&[1, 0, 0, 0, 1, 16], &[0])), 0);
}

#[test]
fn a_block_continues_in_further_frames() {
    let mut table = HeaderTable::default();
    send(&mut table, 0, &STORED_PATH[..1], 1);
    table.begin_continuation(FRAME_HEADER + 2, 2);
    assert!(table.read(&STORED_PATH[1..]));
    assert_eq!(table.kept_bytes(), READ_BUFFER_BYTES);
    table.begin_frame(FRAME_HEADER + 3);
    assert!(table.read(&STORED_PATH));
    assert_eq!(table.kept_bytes(), READ_BUFFER_BYTES, "a frame without headers");
}

#[test]
fn large_frames_and_blocks_keep_large_buffers() {
    const LARGE: u64 = 16_393;
    let mut table = HeaderTable::default();
    table.begin_frame(LARGE as usize);
    let read_buffer = 4 * LARGE - 16_384;
    assert_eq!(table.kept_bytes(), read_buffer);
    send(&mut table, 0, &STORED_PATH, 9);
    assert_eq!(table.kept_bytes(), read_buffer + 4 * LARGE);
    let mut table = HeaderTable::default();
    let unstored = [&[0x00, 1, b'x', 0xff, 0xd1, 0x0e][..], &[0; 2000], &[0x44, 0x81, 0]].concat();
    send(&mut table, 0, &unstored, 9);
    let block = (FRAME_HEADER + unstored.len()) as u64;
    assert_eq!(table.kept_bytes(), 4 * block - HUFFMAN_BUFFER_BYTES + 4 * block);
}

#[test]
fn entries_leave_the_table() {
    let mut table = HeaderTable::default();
    for stored in 1..=1000 {
        send(&mut table, 0, &STORED_PATH, 9);
        // 33 bytes are the least that an entry of one byte can have.
        assert_eq!(table.kept.len(), stored.min(124));
    }
    let others = [0x40, 1, b'x', 1, b'y'].repeat(124);
    send(&mut table, 0, &others, 900);
    assert_eq!(table.kept_bytes(), 0);
}

/// A client with the exact content of its table. It stores every field that is not there, as Go does.
/// Envoy does not store paths.
#[derive(Default)]
struct Client {
    /// Names and values, the newest first.
    entries: VecDeque<(&'static str, String)>,
    size: usize,
    is_huffman: bool,
}

impl Client {
    /// Appends a field to `block`.
    fn write(&mut self, block: &mut Vec<u8>, name: &'static str, value: &str) {
        let mut entries = self.entries.iter();
        if let Some(at) = entries.position(|entry| entry.0 == name && entry.1 == value) {
            return block.extend(number(0x80, 0x7f, 62 + at));
        }
        let known = self.entries.iter().position(|entry| entry.0 == name).map(|at| 62 + at);
        let index = known.unwrap_or(match name {
            ":authority" => 1,
            ":path" => 4,
            _ => 0,
        });
        block.extend(number(0x40, 0x3f, index));
        if index == 0 {
            self.text(block, name);
        }
        self.text(block, value);
        self.size += 32 + name.len() + value.len();
        self.entries.push_front((name, value.to_owned()));
        while self.size > 4096 {
            let (name, value) = self.entries.pop_back().expect("a size over 0");
            self.size -= 32 + name.len() + value.len();
        }
    }

    /// Entries that keep a buffer in h2.
    fn kept(&self) -> usize {
        self.entries.iter().filter(|(name, _)| name.starts_with(':')).count()
    }

    /// A text. Huffman codes have six bits per byte, and no content but a first colon.
    fn text(&self, block: &mut Vec<u8>, text: &str) {
        if !self.is_huffman {
            block.extend(number(0, 0x7f, text.len()));
            return block.extend(text.as_bytes());
        }
        let mut codes = vec![0_u8; (text.len() * 3).div_ceil(4)];
        if text.starts_with(':') {
            codes[0] = 0xb8;
        }
        block.extend(number(0x80, 0x7f, codes.len()));
        block.extend(&codes);
    }
}

/// A number in the bits of `mask` and in further bytes.
fn number(first: u8, mask: u8, value: usize) -> Vec<u8> {
    let byte = |value: usize| u8::try_from(value).unwrap();
    let Some(mut rest) = value.checked_sub(usize::from(mask)) else {
        return vec![first | byte(value)];
    };
    let mut bytes = vec![first | mask];
    while rest >= 128 {
        bytes.push(0x80 | byte(rest % 128));
        rest /= 128;
    }
    bytes.push(byte(rest));
    bytes
}

/// A client sends the same fields with each call, and two that vary and push the others out.
#[test]
fn honest_calls_keep_a_few_buffers() {
    for is_huffman in [false, true] {
        let mut client = Client { is_huffman, ..Client::default() };
        let mut table = HeaderTable::default();
        for call in 0..100_000_u64 {
            let trace = format!("00-{call:032x}-{call:016x}-01");
            let id = format!("{call:08x}-0000-4000-8000-{call:012x}");
            let mut block = vec![0x83, 0x86];
            for (name, value) in [
                (":path", PATH),
                (":authority", "ratelimit:8081"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("grpc-timeout", "20m"),
                ("traceparent", trace.as_str()),
                ("x-request-id", id.as_str()),
            ] {
                client.write(&mut block, name, value);
            }
            send(&mut table, 0, &block, 1000);
            table.begin_frame(200);
            assert!(table.kept_bytes() <= 32 * 1024, "{} after {call}", table.kept_bytes());
        }
    }
}

proptest! {
    /// Whatever a client stores, and wherever its bytes are cut, no buffer is missed.
    #[test]
    fn no_kept_buffer_is_missed(
        fields in prop::collection::vec((0..4_usize, 0..500_usize, any::<bool>()), 1..300),
        cut in 1..40_usize,
    ) {
        let (mut client, mut table) = (Client::default(), HeaderTable::default());
        for (name, length, is_huffman) in fields {
            client.is_huffman = is_huffman;
            let (mut block, value) = (Vec::new(), "v".repeat(length * length / 60));
            client.write(&mut block, [":path", ":authority", "x", "y"][name], &value);
            send(&mut table, 0, &block, cut);
            prop_assert!(table.kept.len() >= client.kept());
        }
    }
}
