//! Errors of the client: each ends its stream or the connection with the reason of the RFC.

use super::*;

/// What the client sends after its settings, and how the connection ends.
type Case = (&'static str, Vec<u8>, Reason);

#[test]
fn a_connection_begins_with_the_preface_and_settings() {
    let table: [(&str, &[u8]); 4] = [
        ("HTTP/1.1", b"GET / HTTP/1.1\r\n"),
        ("a wrong preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx"),
        ("no settings", &[PREFACE, &frame(kind::PING, 0, 0, &[0; 8])[..]].concat()),
        ("an acknowledgement", &[PREFACE, &frame(kind::SETTINGS, 1, 0, &[])[..]].concat()),
    ];
    for (what, bytes) in table {
        let mut wire = Wire::closed(Limits::default());
        assert_eq!(wire.send(bytes), Err(Reason::PROTOCOL_ERROR), "{what}");
    }
    let mut wire = Wire::closed(Limits::default());
    assert!(PREFACE.iter().all(|byte| !wire.receiver.is_open() && wire.send(&[*byte]).is_ok()));
    assert!(wire.receiver.is_open());
}

#[test]
fn errors_of_the_connection_have_their_reason() {
    use flag::*;
    use kind::*;
    let (protocol, size) = (Reason::PROTOCOL_ERROR, Reason::FRAME_SIZE_ERROR);
    let whole = || request(1, END_STREAM);
    let begun = || frame(HEADERS, 0, 1, &REQUEST);
    let table: Vec<Case> = vec![
        ("a large frame", vec![0, 0x40, 1, DATA, 0, 0, 0, 0, 1], size),
        ("DATA of the connection", data(0, 0, b"x"), protocol),
        ("DATA of an idle stream", data(1, 0, b"x"), protocol),
        (
            "padding over the payload",
            [request(1, 0), frame(DATA, PADDED, 1, &[5])].concat(),
            protocol,
        ),
        ("padding without a length", [request(1, 0), frame(DATA, PADDED, 1, &[])].concat(), size),
        ("HEADERS of the connection", request(0, 0), protocol),
        ("HEADERS of a server's stream", request(2, 0), protocol),
        ("HEADERS with half a priority", frame(HEADERS, END | PRIORITY_FLAG, 1, &[0; 4]), size),
        (
            "HEADERS of a closed stream",
            [request(5, END_STREAM), whole()].concat(),
            Reason::STREAM_CLOSED,
        ),
        ("an invalid block", frame(HEADERS, END, 1, &[0x80]), Reason::COMPRESSION_ERROR),
        ("CONTINUATION alone", frame(CONTINUATION, END_HEADERS, 1, &[]), protocol),
        (
            "CONTINUATION after the end",
            [whole(), frame(CONTINUATION, 4, 1, &[])].concat(),
            protocol,
        ),
        ("another frame in a block", [begun(), data(1, 0, b"")].concat(), protocol),
        ("an unknown frame in a block", [begun(), frame(99, 0, 0, b"")].concat(), protocol),
        ("another stream in a block", [begun(), frame(CONTINUATION, 4, 3, &[])].concat(), protocol),
        ("PRIORITY of the connection", frame(kind::PRIORITY, 0, 0, &[0; 5]), protocol),
        ("a short PRIORITY", frame(kind::PRIORITY, 0, 1, &[0; 4]), size),
        ("RST_STREAM of the connection", frame(RST_STREAM, 0, 0, &[0; 4]), protocol),
        ("RST_STREAM of an idle stream", frame(RST_STREAM, 0, 1, &[0; 4]), protocol),
        (
            "RST_STREAM of a server's stream",
            [request(5, END_STREAM), frame(RST_STREAM, 0, 2, &[0; 4])].concat(),
            protocol,
        ),
        ("a short RST_STREAM", [whole(), frame(RST_STREAM, 0, 1, &[0; 3])].concat(), size),
        ("SETTINGS of a stream", frame(SETTINGS, 0, 1, &[]), protocol),
        ("SETTINGS with half a setting", frame(SETTINGS, 0, 0, &[0; 3]), size),
        ("an acknowledgement with settings", frame(SETTINGS, ACK, 0, &[0; 6]), size),
        ("a push", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]), protocol),
        ("PING of a stream", frame(PING, 0, 1, &[0; 8]), protocol),
        ("a short PING", frame(PING, 0, 0, &[0; 7]), size),
        ("GOAWAY of a stream", frame(GOAWAY, 0, 1, &[0; 8]), protocol),
        ("a short GOAWAY", frame(GOAWAY, 0, 0, &[0; 7]), size),
        ("GOAWAY with a reason", frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]), Reason(2)),
        ("a short WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0; 3]), size),
        ("WINDOW_UPDATE of nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4]), protocol),
        ("WINDOW_UPDATE of an idle stream", frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), protocol),
    ];
    for (what, bytes, reason) in table {
        let mut wire = Wire::open(Limits::default());
        assert_eq!(wire.send(&bytes), Err(reason), "{what}");
    }
}

/// [`flag::PRIORITY`], whose name is that of a kind too.
const PRIORITY_FLAG: u8 = flag::PRIORITY;

#[test]
fn errors_of_a_stream_reset_it_alone() {
    use flag::*;
    use kind::*;
    let (protocol, closed) = (Reason::PROTOCOL_ERROR, Reason::STREAM_CLOSED);
    let block = |fields: &[u8]| frame(HEADERS, END, 1, &[&REQUEST, fields].concat());
    let sized = |length: u8| {
        let fields = [&REQUEST[..], &[0x0f, 0x0d, 1, length]].concat();
        frame(HEADERS, END_HEADERS, 1, &fields)
    };
    let update = |bytes: u32| frame(WINDOW_UPDATE, 0, 1, &bytes.to_be_bytes());
    let table: Vec<Case> = vec![
        ("no path", frame(HEADERS, END, 1, &REQUEST[..2]), protocol),
        ("a capital letter", block(&[0, 1, b'X', 0]), protocol),
        ("a late method", block(&[0, 1, b'x', 0, 0x83]), protocol),
        ("a second method", block(&[0x83]), protocol),
        ("a status", block(&[0x88]), protocol),
        (
            "a connection",
            block(&[0, 10, b'c', b'o', b'n', b'n', b'e', b'c', b't', b'i', b'o', b'n', 0]),
            protocol,
        ),
        ("a line break", block(&[0, 1, b'x', 1, b'\n']), protocol),
        (
            "itself as parent",
            frame(HEADERS, END | PRIORITY_FLAG, 1, &[&[0, 0, 0, 1, 0], &REQUEST[..]].concat()),
            protocol,
        ),
        (
            "itself as parent later",
            [request(1, 0), frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0])].concat(),
            protocol,
        ),
        ("DATA after the end", [request(1, END_STREAM), data(1, 0, b"x")].concat(), closed),
        (
            "HEADERS after the end",
            [request(1, END_STREAM), request(1, END_STREAM)].concat(),
            closed,
        ),
        ("trailers without an end", [request(1, 0), request(1, 0)].concat(), protocol),
        ("trailers with a path", [request(1, 0), request(1, END_STREAM)].concat(), protocol),
        ("more than content-length", [sized(b'1'), data(1, 0, b"ab")].concat(), protocol),
        ("less than content-length", [sized(b'2'), data(1, END_STREAM, b"a")].concat(), protocol),
        (
            "no content",
            frame(HEADERS, END, 1, &[&REQUEST[..], &[0x0f, 0x0d, 1, b'2']].concat()),
            protocol,
        ),
        (
            "trailers before the content",
            [sized(b'2'), frame(HEADERS, END, 1, &[])].concat(),
            protocol,
        ),
        ("a window update of 0", [request(1, 0), update(0)].concat(), protocol),
        (
            "a large window",
            [request(1, 0), update((1 << 31) - 1)].concat(),
            Reason::FLOW_CONTROL_ERROR,
        ),
    ];
    for (what, bytes, reason) in table {
        let mut wire = Wire::open(Limits::default());
        assert_eq!(wire.send(&bytes), Ok(()), "{what}");
        let reset = (RST_STREAM, 0, 1, reason.0.to_be_bytes().to_vec());
        assert_eq!(wire.sent(), [reset], "{what}");
        assert!(wire.engine.is_idle(), "{what}");
        assert!(wire.accept().is_none_or(|(.., body)| body.is_none()), "{what}");
        // The table of the decoder is right, and the connection goes on.
        wire.send(&request(3, END_STREAM)).unwrap();
        assert_eq!(wire.accept().unwrap().1.0[2], ":path=/x", "{what}");
    }
}

#[test]
fn valid_frames_are_accepted() {
    use flag::*;
    use kind::*;
    let padded = |kind, flags, payload: &[u8]| {
        frame(kind, flags | PADDED, 1, &[&[3], payload, &[0; 3]].concat())
    };
    let table: Vec<(&str, Vec<u8>, &[u8])> = vec![
        (
            "padding",
            [padded(HEADERS, END_HEADERS, &REQUEST), padded(DATA, END_STREAM, b"ab")].concat(),
            b"ab",
        ),
        (
            "CONTINUATION",
            [
                frame(HEADERS, END_STREAM, 1, &REQUEST[..3]),
                frame(CONTINUATION, 0, 1, &REQUEST[3..7]),
                frame(CONTINUATION, END_HEADERS, 1, &REQUEST[7..]),
            ]
            .concat(),
            b"",
        ),
        (
            "trailers",
            [request(1, 0), data(1, 0, b"ab"), frame(HEADERS, END, 1, &[0, 1, b'x', 0])].concat(),
            b"ab",
        ),
        (
            "a priority",
            frame(HEADERS, END | PRIORITY_FLAG, 1, &[&[0, 0, 0, 9, 5], &REQUEST[..]].concat()),
            b"",
        ),
        ("unknown frames", [frame(99, 255, 7, b"?"), request(1, END_STREAM)].concat(), b""),
        (
            "PRIORITY before",
            [frame(kind::PRIORITY, 0, 1, &[0; 5]), request(1, END_STREAM)].concat(),
            b"",
        ),
        ("GOAWAY in order", [frame(GOAWAY, 0, 0, &[0; 9]), request(1, END_STREAM)].concat(), b""),
        (
            "pieces",
            [request(1, 0), data(1, 0, b"a"), data(1, 0, b""), data(1, 1, b"b")].concat(),
            b"ab",
        ),
    ];
    for (what, bytes, body) in table {
        let mut wire = Wire::open(Limits::default());
        assert_eq!(wire.send(&bytes), Ok(()), "{what}");
        let (_, fields, received) = wire.accept().unwrap();
        assert_eq!((fields.0.len(), received), (4, Some((body.to_vec(), true))), "{what}");
        assert_eq!(wire.sent(), [], "{what}");
    }
}

#[test]
fn too_large_headers_are_refused() {
    let limits = Limits { max_header_bytes: 1000, ..Limits::default() };
    let long = |length: usize| {
        let [a, b] = ((length - 127) as u16).to_be_bytes();
        let length = [0x7f, b & 0x7f | 0x80, a << 1 | b >> 7];
        [
            &REQUEST[..],
            &[0x40, 1, b'x'],
            &length,
            &vec![b'y'; 127 + usize::from(a) * 256 + usize::from(b)],
        ]
        .concat()
    };
    let mut wire = Wire::open(limits);
    let list = 7 + 4 + 7 + 4 + 5 + 2 + 10 + 1 + 4 * 32;
    wire.send(&frame(kind::HEADERS, END, 1, &long(1000 - list - 33))).unwrap();
    assert!(wire.accept().is_some());
    wire.send(&frame(kind::HEADERS, flag::END_HEADERS, 3, &long(1001 - list - 33))).unwrap();
    let sent = wire.sent();
    assert_eq!((sent[0].0, sent[0].1, sent[0].2), (kind::HEADERS, END, 3));
    assert!(sent[0].3.ends_with(b"431"));
    assert_eq!(sent[1], (kind::RST_STREAM, 0, 3, vec![0; 4]));
    // The field was stored nevertheless.
    wire.send(&frame(kind::HEADERS, END, 5, &[&REQUEST[..], &[0xbf]].concat())).unwrap();
    assert_eq!(wire.accept().unwrap().1.0.len(), 5);
}

/// All users of a proxy share its connection.
#[test]
fn too_large_headers_do_not_end_the_connection() {
    let limits = Limits { max_header_bytes: 50, max_error_resets: 7, ..Limits::default() };
    let mut wire = Wire::open(limits);
    for index in 0..1000 {
        wire.send(&request(2 * index + 1, flag::END_STREAM)).unwrap();
        assert_eq!(wire.kinds(), [(kind::HEADERS, 2 * index + 1)]);
    }
}

#[test]
fn a_panic_leaves_no_part_of_a_response() {
    let mut wire = Wire::open(Limits::default());
    wire.send(&request(1, flag::END_STREAM)).unwrap();
    let (key, ..) = wire.accept().unwrap();
    let panics = std::panic::AssertUnwindSafe(|| {
        wire.engine.send_message(key, 5, |out| {
            out.push(0);
            panic!("in the message");
        })
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(wire.sent(), []);
    assert!(wire.engine.send_message(key, 5, |out| out.extend([0; 5])).unwrap());
    assert_eq!(wire.kinds(), [(kind::HEADERS, 1), (kind::DATA, 1), (kind::HEADERS, 1)]);
}

#[test]
fn floods_end_the_connection() {
    use kind::*;
    let limits = Limits {
        max_control_frames: 10,
        max_pending_resets: 5,
        max_error_resets: 7,
        max_concurrent_streams: 3,
        ..Limits::default()
    };
    type Flood = (&'static str, fn(u32) -> Vec<u8>, u32);
    let table: [Flood; 9] = [
        ("pings", |_| frame(PING, 0, 0, &[0; 8]), 10),
        ("unknown frames", |_| frame(99, 0, 0, &[]), 10),
        (
            "empty DATA",
            |index| [if index == 0 { request(1, 0) } else { vec![] }, data(1, 0, b"")].concat(),
            10,
        ),
        (
            "resets",
            |index| {
                [request(2 * index + 1, 0), frame(RST_STREAM, 0, 2 * index + 1, &[0; 4])].concat()
            },
            5,
        ),
        ("malformed requests", |index| frame(HEADERS, END, 2 * index + 1, &[]), 7),
        ("streams over the limit", |index| request(2 * index + 1, 0), 10),
        (
            "HEADERS of a stream that was reset",
            |index| if index == 0 { frame(HEADERS, END, 1, &[]) } else { request(1, 0) },
            10,
        ),
        (
            "DATA of closed streams",
            |index| {
                [
                    if index == 0 {
                        [request(1, 0), frame(RST_STREAM, 0, 1, &[0; 4])].concat()
                    } else {
                        vec![]
                    },
                    data(1, 0, b"x"),
                ]
                .concat()
            },
            9,
        ),
        (
            "CONTINUATION",
            |index| {
                if index == 0 { frame(HEADERS, 0, 1, &[]) } else { frame(CONTINUATION, 0, 1, &[]) }
            },
            8,
        ),
    ];
    for (what, flood, passes) in table {
        let mut wire = Wire::open(limits);
        let sent = (0..100).take_while(|index| wire.send(&flood(*index)).is_ok()).count();
        // The settings cost one.
        assert!(sent as u32 <= passes && sent as u32 + 2 >= passes, "{what}: {sent}");
        assert_eq!(wire.send(&flood(99)), Err(Reason::ENHANCE_YOUR_CALM), "{what}");
    }
}
