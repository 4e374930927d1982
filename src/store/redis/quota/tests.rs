//! Tests of the encoding of settlements and of the decoding of holdings.

use super::*;
use crate::store::redis::reply::{Reply, ReplyError, ReplyReader};

fn holding(share: u64, want: u64) -> Holding {
    let (old_until, expires) = (Micros(0x21), Micros(INTEGER_END - 1));
    Holding { share, old_share: 0x20, old_until, expires, want }
}

fn record(id: [u64; 2], numbers: [u64; 5]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_be_bytes()[1..].to_vec());
    id_bytes(id).into_iter().chain(numbers).collect()
}

#[test]
fn a_settlement_is_encoded_as_the_script_reads_it() {
    let change = |low, share, held, want, expires| {
        let holder = HolderId([0x0102_0304_0506_0708, low]);
        Change { holder, share, held, want, expires: Micros(expires) }
    };
    let settlement = Settlement {
        now: Micros(0x11_1213_1415_1617),
        requests: 1,
        window: Micros(2),
        grace: Micros(3),
        changes: vec![change(9, 4, 5, 6, 7), change(10, u64::MAX, 0, INTEGER_END, 256)],
    };
    let last = [0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let expected = [
        &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17][..],
        &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3],
        &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9],
        &[0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 7],
        &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 10],
        &last,
        &[0; 7],
        &last,
        &[0, 0, 0, 0, 0, 1, 0],
    ];
    assert_eq!(encode(&settlement), expected.concat());
}

#[test]
fn holdings_are_decoded_in_the_order_of_ids() {
    let end = INTEGER_END - 1;
    let [a, b, c] = [[1, u64::MAX], [2, 0], [u64::MAX, 1]];
    let reply = [
        record(c, [3, 0x20, 0x21, end, 30]),
        record(a, [1, 0x20, 0x21, end, 10]),
        record(b, [2, 0x20, 0x21, end, end]),
    ];
    let snapshot = decode(&reply.concat()).expect("three holdings");
    let expected = [
        (HolderId(a), holding(1, 10)),
        (HolderId(b), holding(2, end)),
        (HolderId(c), holding(3, 30)),
    ];
    assert_eq!(snapshot.holdings, expected);
    assert_eq!(snapshot.get(HolderId(b)), Some(&holding(2, end)));
    assert_eq!(decode(&[]), Ok(LedgerSnapshot::default()));
}

#[test]
fn unexpected_holdings_are_malformed() {
    let one = record([1, 2], [1, 2, 3, 4, 5]);
    let large = |index: usize| {
        let mut numbers = [1; 5];
        numbers[index] = INTEGER_END;
        record([1, 2], numbers)
    };
    let mut replies: Vec<Vec<u8>> = (0..5).map(large).collect();
    replies.extend([
        one[1..].to_vec(),
        [one.as_slice(), &[0]].concat(),
        one.repeat(2),
        [one.clone(), record([1, 1], [0; 5]), one].concat(),
    ]);
    for reply in replies {
        assert_eq!(decode(&reply), Err(MalformedReply), "{reply:?}");
    }
    let many = |holders: usize| -> Vec<u8> {
        (0..holders as u64).flat_map(|id| record([0, id], [1, 0, 0, 9, 0])).collect()
    };
    assert!(decode(&many(HOLDERS_MAX)).is_ok());
    assert_eq!(decode(&many(HOLDERS_MAX + 1)), Err(MalformedReply));
}

#[test]
fn the_bound_has_room_for_all_holders() {
    let read = |bytes: &[u8]| {
        let mut reader = ReplyReader::default();
        reader.room().extend_from_slice(bytes);
        reader.next(SETTLED)
    };
    let full = HOLDERS_MAX * HOLDING_BYTES;
    let bytes = [format!("${full}\r\n").into_bytes(), vec![0; full], b"\r\n".to_vec()].concat();
    assert!(matches!(read(&bytes), Ok(Some(Reply::Text(_)))));
    let too_long = ReplyError::TooLong(SETTLED.bytes);
    assert_eq!(read(format!("${}\r\n", full + HOLDING_BYTES).as_bytes()), Err(too_long));
    assert_eq!(read(b"*1\r\n"), Err(ReplyError::TooMany(0)));
    let error = b"-WRONGTYPE Operation against a key\r\n";
    assert!(matches!(read(error), Ok(Some(Reply::Error(_)))));
}
