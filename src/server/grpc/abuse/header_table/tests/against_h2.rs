//! The bound against h2: both read the same random blocks, and h2 then shows what its table has.

use super::*;

use bytes::Bytes;
use futures_util::FutureExt;
use h2::server::{Connection, handshake};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A header block in frames.
#[derive(Clone, Debug)]
struct Block {
    fields: Vec<u8>,
    /// Where CONTINUATION frames begin.
    cuts: Vec<usize>,
    /// A flag of the first frame, what it puts before the block, and the bytes of padding behind.
    extra: (u8, Vec<u8>, usize),
}

impl Block {
    /// The type, the flags and the payload of each frame.
    fn frames(&self) -> Vec<(u8, u8, Vec<u8>)> {
        let mut cuts: Vec<usize> = self.cuts.iter().map(|cut| cut % self.fields.len()).collect();
        cuts.extend([0, self.fields.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| self.fields[cut[0]..cut[1]].to_vec());
        let frame = |piece| (CONTINUATION, 0, piece);
        let mut frames: Vec<(u8, u8, Vec<u8>)> = pieces.map(frame).collect();
        let (flag, before, padding) = &self.extra;
        let first = &mut frames[0];
        let payload = [&before[..], &first.2, &vec![0; *padding]].concat();
        *first = (HEADERS, END_STREAM | flag, payload);
        let last = frames.len() - 1;
        frames[last].1 |= END_HEADERS;
        frames
    }
}

/// h2 and its client.
struct H2 {
    client: DuplexStream,
    connection: Connection<DuplexStream, Bytes>,
    next_stream: u32,
}

/// What h2 does with a request.
#[derive(Debug, PartialEq)]
enum Outcome {
    Accepted { has_authority: bool },
    Reset,
    Closed,
}

impl H2 {
    fn open() -> H2 {
        let (mut client, server) = duplex(1 << 20);
        let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]];
        write(&mut client, &preface.concat());
        let connection = handshake(server).now_or_never().expect("the preface is there").unwrap();
        H2 { client, connection, next_stream: 1 }
    }

    /// Sends the frames of one request.
    fn send(&mut self, frames: &[(u8, u8, Vec<u8>)]) -> Outcome {
        for (kind, flags, payload) in frames {
            let length = u32::try_from(payload.len()).unwrap();
            let head = [&length.to_be_bytes()[1..], &[*kind, *flags]].concat();
            let stream = self.next_stream.to_be_bytes();
            write(&mut self.client, &[&head[..], &stream, payload].concat());
        }
        self.next_stream += 2;
        let mut outcome = Outcome::Reset;
        loop {
            match self.connection.accept().now_or_never() {
                None => return outcome,
                Some(Some(Ok((request, _)))) => {
                    let has_authority = request.uri().authority().is_some();
                    outcome = Outcome::Accepted { has_authority };
                }
                Some(_) => return Outcome::Closed,
            }
        }
    }

    /// A request whose block is complete in one frame.
    fn request(&mut self, fields: &[u8]) -> Outcome {
        self.send(&[(HEADERS, END_STREAM | END_HEADERS, fields.to_vec())])
    }

    /// Whether the entry at `index` is an authority, a path or a scheme; `None` if there is none.
    fn keeps_buffer(&mut self, index: usize) -> Option<bool> {
        let entry = number(0x80, 0x7f, index);
        // Both requests have a scheme and a path, the first also a method.
        let with_method = self.request(&[&[0x83, 0x86, 0x84][..], &entry].concat());
        let without_method = self.request(&[&[0x86, 0x84][..], &entry].concat());
        let keeps = match (with_method, without_method) {
            (Outcome::Accepted { has_authority }, _) => has_authority,
            (_, Outcome::Accepted { .. }) => false,
            _ => true,
        };
        let next = self.request(&[0x83, 0x86, 0x84]);
        matches!(next, Outcome::Accepted { .. }).then_some(keeps)
    }

    /// Whether each entry of the table keeps a buffer, the newest first. Ends the connection.
    fn entries(mut self) -> Vec<bool> {
        (62..).map_while(|index| self.keeps_buffer(index)).collect()
    }
}

fn write(client: &mut DuplexStream, bytes: &[u8]) {
    client.write_all(bytes).now_or_never().expect("there is room").unwrap();
}

/// Returns false if weir would close the connection.
fn follow(table: &mut HeaderTable, stream: u32, frames: &[(u8, u8, Vec<u8>)]) -> bool {
    frames.iter().all(|(kind, flags, payload)| {
        let bytes = FRAME_HEADER + payload.len();
        match *kind {
            HEADERS => table.begin_headers(bytes, payload.len(), *flags, stream),
            _ => table.begin_continuation(bytes, payload.len()),
        }
        table.read(payload)
    })
}

fn bytes(alternatives: &[(u32, &[u8])]) -> BoxedStrategy<Vec<u8>> {
    let just = |(weight, bytes): &(u32, &[u8])| (*weight, Just(bytes.to_vec()).boxed());
    prop::strategy::Union::new_weighted(alternatives.iter().map(just).collect()).boxed()
}

/// A field with a text, or an index.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let name = bytes(&[
        (20, b"\x05:path"),
        (20, b"\x0a:authority"),
        (20, b"\x84\xb9\x58\xd3\x3f"),
        (20, b"\x01x"),
        (1, b"\x00"),
        (1, b"\x80"),
    ]);
    // The fourth is valid in Huffman codes. Without its first byte, it is a stored path.
    let value = bytes(&[
        (3, b"\x01/"),
        (1, b"\x00"),
        (3, b"\x81\x63"),
        (3, b"\x83\x44\x01\x2f"),
        (1, &[&[0x7f, 0x80, 0x01][..], &[b'v'; 255]].concat()),
    ]);
    let kinds: Vec<(u8, u8)> = vec![(0x40, 0x3f), (0x40, 0x3f), (0x00, 0x0f), (0x10, 0x0f)];
    let indexes: Vec<usize> = vec![0, 0, 0, 1, 4, 6, 62, 63, 65];
    let (kind, index) = (prop::sample::select(kinds), prop::sample::select(indexes));
    let literal = (kind, index, name, value).prop_map(|((first, mask), index, name, value)| {
        let name = if index == 0 { name } else { Vec::new() };
        [number(first, mask, index), name, value].concat()
    });
    let other =
        bytes(&[(1, b"\x83"), (1, b"\x84"), (1, b"\xbe"), (1, b"\xc1"), (1, b"\x42\x03GET")]);
    prop_oneof![6 => literal, 1 => other]
}

fn block() -> impl Strategy<Value = Block> {
    let fields = prop::collection::vec(field(), 1..8).prop_map(|fields| fields.concat());
    let cuts = prop::collection::vec(0..1000_usize, 0..4);
    let extras: Vec<(u8, Vec<u8>, usize)> = vec![
        (0, vec![], 0),
        (0, vec![], 0),
        (PADDED, vec![2], 2),
        (WITH_PRIORITY, vec![0, 0, 0, 0, 16], 0),
        // Stream 5 would depend on itself, and h2 would skip its block.
        (WITH_PRIORITY, vec![0, 0, 0, 5, 16], 0),
    ];
    let parts = (fields, cuts, prop::sample::select(extras));
    parts.prop_map(|(fields, cuts, extra)| Block { fields, cuts, extra })
}

/// Four entries, so that the indexes of random fields exist.
const FIRST: &[u8] = b"\x40\x01x\x01y\x44\x01/\x41\x01a\x46\x04http";

#[test]
fn h2_shows_its_table() {
    let mut h2 = H2::open();
    assert_eq!(h2.request(FIRST), Outcome::Reset);
    assert_eq!(h2.entries(), [true, true, true, false]);
    let mut h2 = H2::open();
    assert_eq!(h2.request(b"\x42\x03GET\x86\x84"), Outcome::Accepted { has_authority: false });
    assert_eq!(h2.entries(), [false]);
}

/// The reason why weir refuses such a field.
#[test]
fn h2_reads_a_field_without_a_name_again() {
    let mut h2 = H2::open();
    let begun = (HEADERS, END_STREAM, vec![0x00, 0x00, 0x83, 0x44, 1, b'/']);
    let outcome = h2.send(&[begun, (CONTINUATION, END_HEADERS, vec![0x86])]);
    assert_eq!(outcome, Outcome::Accepted { has_authority: false });
    assert_eq!(h2.entries(), [true]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Where neither closes the connection, the bound knows each entry that keeps a buffer in h2.
    #[test]
    fn no_buffer_of_h2_is_missed(blocks in prop::collection::vec(block(), 1..20)) {
        let (mut table, mut h2) = (HeaderTable::default(), H2::open());
        let first = Block { fields: FIRST.to_vec(), cuts: Vec::new(), extra: (0, Vec::new(), 0) };
        for block in [first].iter().chain(&blocks) {
            let frames = block.frames();
            if !follow(&mut table, h2.next_stream, &frames) || h2.send(&frames) == Outcome::Closed {
                return Ok(());
            }
        }
        let entries = h2.entries();
        let kept = entries.iter().filter(|keeps| **keeps).count();
        prop_assert!(table.kept.len() >= kept, "{} of {kept}", table.kept.len());
        for (newer, keeps) in entries.into_iter().enumerate() {
            let counted = table.keep_buffers >> newer & 1 == 1;
            prop_assert!(!keeps || counted, "{newer} entries are newer");
        }
    }
}
