//! Tests of the decoder: the examples of RFC 7541, invalid blocks, and bounds.

use super::super::dynamic_table::MEMORY_MAX;
use super::*;

use proptest::prelude::*;

type Fields = Vec<(String, String)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, CompressionError> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(block, |_, name, value| {
        fields.push((text(name), text(value)));
        true
    })?;
    Ok(fields)
}

fn fields(pairs: &[(&str, &str)]) -> Fields {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// An entry keeps what its name means, because two bytes may refer to a name of four thousand.
#[test]
fn a_stored_name_has_its_kind() {
    let mut decoder = Decoder::new();
    let name = "n".repeat(100);
    let block = [&[0x40, 100], name.as_bytes(), &[0, 0x7e, 0, 0x7e, 0]].concat();
    assert_eq!(decode(&mut decoder, &block).unwrap(), fields(&[(name.as_str(), ""); 3]));
    assert!((0..3).all(|index| decoder.table.name_kind(index) == Some(NameKind::Plain)));
    decode(&mut decoder, &[&[0x40, 1], &b"X"[..], &[0]].concat()).unwrap();
    assert_eq!(decoder.table.name_kind(0), Some(NameKind::Malformed));
}

/// In each form of a field, which is not stored then.
#[test]
fn a_visitor_ends_a_block() {
    for form in [0x82, 0x42, 0x02] {
        let field = if form == 0x82 { vec![form] } else { vec![form, 1, b'x'] };
        let (block, mut visited, mut decoder) = (field.repeat(9), 0, Decoder::new());
        let decoded = decoder.decode(&block, |_, _, _| {
            visited += 1;
            visited < 3
        });
        assert_eq!((decoded, visited), (Err(CompressionError), 3), "{form:#x}");
        let stored = u64::from(form == 0x42) * 2;
        assert_eq!(decoder.version(), stored, "{form:#x}");
    }
}

/// Appendix C.2: one field of each form.
#[test]
fn each_form_of_a_field_is_decoded() {
    let table = [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            ("custom-key", "custom-header"),
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", (":path", "/sample/path")),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", ("password", "secret")),
        ("82", (":method", "GET")),
    ];
    for (block, field) in table {
        assert_eq!(decode(&mut Decoder::new(), &bytes(block)).unwrap(), fields(&[field]));
    }
}

/// Appendix C.3 and C.4: three requests of one connection, as text and in Huffman codes.
#[test]
fn requests_share_the_table() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let host = (":authority", "www.example.com");
    let get = |path| [(":method", "GET"), (":scheme", "http"), (":path", path), host];
    let expected = [
        fields(&get("/")),
        [fields(&get("/")), fields(&[("cache-control", "no-cache")])].concat(),
        fields(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            host,
            ("custom-key", "custom-value"),
        ]),
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::new();
        for (block, expected) in blocks.iter().zip(&expected) {
            assert_eq!(&decode(&mut decoder, &bytes(block)).unwrap(), expected);
        }
        let stored: Vec<_> = (0..).map_while(|index| decoder.table.get(index)).collect();
        let names: Vec<&[u8]> = stored.iter().map(|(_, name, _)| *name).collect();
        assert_eq!(names, [&b"custom-key"[..], b"cache-control", b":authority"]);
    }
}

#[test]
fn invalid_blocks_are_errors() {
    let mut decoder = Decoder::new();
    for (block, problem) in [
        ("80", "index 0"),
        ("be", "an empty dynamic table"),
        ("ff ff ff ff ff 0f", "a large index"),
        ("40", "no name"),
        ("4001", "half a name"),
        ("40 01 61", "no value"),
        ("40 01 61 02 62", "half a value"),
        ("41 ff ff ff ff ff 7f", "a large length"),
        ("3f e2 1f", "a table of 4097 bytes"),
        ("82 20", "a size after a field"),
        ("40 81 ff 00", "padding of eight bits"),
        ("7f 80", "an incomplete index"),
    ] {
        assert_eq!(decode(&mut decoder, &bytes(block)), Err(CompressionError), "{problem}");
    }
    assert_eq!(decode(&mut decoder, &bytes("20 3f e1 1f 82")), Ok(fields(&[(":method", "GET")])));
    assert_eq!(decode(&mut decoder, &[]), Ok(vec![]));
}

#[test]
fn the_version_changes_with_the_table() {
    let mut decoder = Decoder::new();
    for (block, changes) in [("82", false), ("04 01 2f", false), ("44 01 2f", true), ("20", true)] {
        let before = decoder.version();
        decode(&mut decoder, &bytes(block)).unwrap();
        assert_eq!(decoder.version() != before, changes, "{block}");
    }
}

proptest! {
    #[test]
    fn any_block_keeps_memory_in_bounds(
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..50)
    ) {
        let mut decoder = Decoder::new();
        for block in blocks {
            let _ = decode(&mut decoder, &block);
            prop_assert!(decoder.memory() <= MEMORY_MAX + 2 * SCRATCH_KEPT);
        }
    }
}
