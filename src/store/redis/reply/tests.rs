//! Tests of the reader of replies, with replies over each bound.

use proptest::prelude::*;

use super::budget::ReplyBudget;
use super::*;

const SMALL: ReplyBound = ReplyBound { bytes: 1_000, elements: 20 };

fn text(text: &str) -> Reply {
    Reply::Text(Bytes::copy_from_slice(text.as_bytes()))
}

/// Feeds `bytes` in reads of `size`. Returns the replies, and the error that ended them.
fn read(bytes: &[u8], size: usize, bound: ReplyBound) -> (Vec<Reply>, Option<ReplyError>) {
    let (mut reader, mut replies) = (ReplyReader::default(), Vec::new());
    for part in bytes.chunks(size) {
        reader.room().extend_from_slice(part);
        loop {
            match reader.next(bound) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
        assert!(reader.buffer.len() <= bound.bytes + size, "{} bytes", reader.buffer.len());
    }
    (replies, None)
}

#[test]
fn replies_are_read_however_they_are_split() {
    let bytes = b"+OK\r\n-ERR no\r\n:-7\r\n$5\r\na\r\nbc\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n\
                  *3\r\n:1\r\n*2\r\n$1\r\nx\r\n*0\r\n+last\r\n+next\r\n";
    let nested = Reply::Array(vec![text("x"), Reply::Array(vec![])]);
    let expected = vec![
        text("OK"),
        Reply::Error(Bytes::from_static(b"ERR no")),
        Reply::Integer(-7),
        text("a\r\nbc"),
        Reply::Nil,
        Reply::Nil,
        Reply::Array(vec![]),
        text(""),
        Reply::Array(vec![Reply::Integer(1), nested, text("last")]),
        text("next"),
    ];
    for size in 1..=bytes.len() {
        assert_eq!(read(bytes, size, SMALL), (expected.clone(), None), "reads of {size}");
    }
}

#[test]
fn a_reply_over_a_bound_is_an_error_at_once() {
    let deep = b"*1\r\n".repeat(100_000);
    let line = [&b"+"[..], &b"a".repeat(5_000)].concat();
    let many = [&b"*20\r\n"[..], &b"*1\r\n:1\r\n".repeat(20)].concat();
    let too_long = ReplyError::TooLong(1_000);
    let table: [(&[u8], ReplyError); 9] = [
        (&deep, ReplyError::TooDeep),
        (b"$2147483647\r\n", too_long),
        (b"$9223372036854775807\r\n", too_long),
        (b"$1000\r\n", too_long),
        (b"*2\r\n$600\r\n", ReplyError::TooLong(600)),
        (&line, too_long),
        (b"*2147483647\r\n", ReplyError::TooMany(20)),
        (b"*9223372036854775807\r\n", ReplyError::TooMany(20)),
        (&many, ReplyError::TooMany(20)),
    ];
    for (bytes, error) in table {
        let bytes_max = if error == ReplyError::TooLong(600) { 600 } else { SMALL.bytes };
        let bound = ReplyBound { bytes: bytes_max, ..SMALL };
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(30)]).into_owned();
        for size in [1, 7, 20_000] {
            assert_eq!(read(bytes, size, bound), (vec![], Some(error)), "{shown}");
        }
    }
}

#[test]
fn other_bytes_are_malformed() {
    let table: [&[u8]; 12] = [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\r\n",
        b"\n",
        b"+OK\n",
        b":\r\n",
        b":x\r\n",
        b":9223372036854775808\r\n",
        b"$-2\r\n",
        b"*-2\r\n",
        b"$3\r\nabcde",
        b"%1\r\n+a\r\n+b\r\n",
        b"*1\r\n_\r\n",
    ];
    for bytes in table {
        let (replies, error) = read(bytes, 3, SMALL);
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!((replies, error), (vec![], Some(ReplyError::Malformed)), "{shown}");
    }
}

#[test]
fn the_buffer_of_a_large_reply_is_freed() {
    let mut reader = ReplyReader::default();
    let large = [&b"$1000000\r\n"[..], &vec![b'a'; 1_000_000], b"\r\n"].concat();
    for part in large.chunks(READ_BYTES) {
        assert_eq!(reader.next(ReplyBound::USUAL), Ok(None));
        reader.room().extend_from_slice(part);
    }
    assert!(matches!(reader.next(ReplyBound::USUAL), Ok(Some(Reply::Text(_)))));
    assert!(reader.buffer.capacity() <= IDLE_BYTES_MAX && !reader.has_bytes());
}

#[test]
fn incomplete_replies_share_one_budget() {
    static BUDGET: ReplyBudget = ReplyBudget::new(60_000);
    let half = [&b"$99990\r\n"[..], &vec![b'a'; 50_000]].concat();
    let begin = || {
        let mut reader = ReplyReader { share: BudgetShare::of(&BUDGET), ..ReplyReader::default() };
        reader.room().extend_from_slice(&half);
        let result = reader.next(ReplyBound::USUAL);
        (reader, result)
    };
    let (mut first, result) = begin();
    assert_eq!(result, Ok(None));
    assert_eq!(begin().1, Err(ReplyError::NoRoom));
    first.room().extend_from_slice(&[&[b'a'; 49_990][..], b"\r\n"].concat());
    assert!(matches!(first.next(ReplyBound::USUAL), Ok(Some(Reply::Text(_)))));
    let (second, result) = begin();
    assert_eq!(result, Ok(None), "a complete reply gives its bytes back");
    drop(second);
    assert_eq!(begin().1, Ok(None), "and so does a closed connection");
}

#[test]
fn numbers_may_be_written_as_strings() {
    let table = [
        (Reply::Integer(7), Some(7)),
        (Reply::Integer(-7), None),
        (text("1700000000"), Some(1_700_000_000)),
        (text("x"), None),
        (Reply::Nil, None),
    ];
    for (reply, number) in table {
        assert_eq!(reply.number(), number, "{reply:?}");
    }
}

proptest! {
    /// Bytes that look like replies, mutated.
    #[test]
    fn no_bytes_panic_or_exceed_the_bound(
        parts in prop::collection::vec(
            prop_oneof![
                4 => prop::sample::select(vec![
                    "*", "$", "+", "-", ":", "\r\n", "1", "2", "-1", "9", "*2\r\n", "$3\r\n",
                    "abc\r\n", ":1\r\n", "*0\r\n", "99999999999999999999", "*1\r\n",
                ]).prop_map(|text| text.as_bytes().to_vec()),
                1 => prop::collection::vec(any::<u8>(), 0..4),
            ],
            0..60,
        ),
        size in 1..9_usize,
    ) {
        let bytes = parts.concat();
        let whole = read(&bytes, bytes.len().max(1), SMALL);
        prop_assert_eq!(read(&bytes, size, SMALL), whole);
    }
}
