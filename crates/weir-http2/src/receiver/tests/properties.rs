//! Properties of any input: it may be cut anywhere, it never panics, and memory is bounded.

use super::*;

use proptest::prelude::*;

/// A frame that is valid or nearly so.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![8 => (0..12_u32).prop_map(|number| 2 * number + 1), 1 => 0..30_u32];
    let block = prop_oneof![
        4 => Just(REQUEST.to_vec()),
        1 => Just([&REQUEST[..], &[0x40, 1, b'x', 2, b'y', b'z']].concat()),
        1 => Just([&REQUEST[..], &[0xbe]].concat()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    let payload = prop::collection::vec(any::<u8>(), 0..20);
    let sized = prop_oneof![Just(4), Just(5), Just(6), Just(8)];
    let sized = sized.prop_flat_map(|length| prop::collection::vec(0..3_u8, length));
    prop_oneof![
        4 => (stream.clone(), block.clone(), any::<bool>())
            .prop_map(|(stream, block, ends)| {
                frame(kind::HEADERS, flag::END_HEADERS | u8::from(ends), stream, &block)
            }),
        1 => (stream.clone(), block, any::<u8>())
            .prop_map(|(stream, block, flags)| frame(kind::HEADERS, flags, stream, &block)),
        4 => (stream.clone(), payload.clone(), any::<bool>())
            .prop_map(|(stream, payload, ends)| data(stream, u8::from(ends), &payload)),
        3 => (0..10_u8, any::<u8>(), stream.clone(), sized)
            .prop_map(|(kind, flags, stream, payload)| frame(kind, flags & 0x2d, stream, &payload)),
        1 => (any::<u8>(), any::<u8>(), stream, payload)
            .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload)),
    ]
}

/// Everything that can be seen of a connection after it has received `pieces`: how it ended, its calls,
/// and what it sent.
fn outcome(pieces: &[&[u8]]) -> (Result<(), Reason>, Vec<Fields>, Vec<Sent>) {
    let mut wire = Wire::open(Limits::default());
    let end = pieces.iter().try_for_each(|piece| wire.send(piece));
    let calls = std::iter::from_fn(|| wire.accept()).map(|(_, fields, _)| fields).collect();
    (end, calls, wire.sent())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn cuts_do_not_matter(
        frames in prop::collection::vec(any_frame(), 1..20),
        size in 1..30_usize,
    ) {
        let bytes = frames.concat();
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        prop_assert_eq!(outcome(&[&bytes]), outcome(&pieces));
    }

    #[test]
    fn any_bytes_are_received(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = outcome(&[&bytes]);
    }

    /// Calls are accepted, answered, read and dropped in any order between frames. The memory is
    /// bounded by the windows and the limits, and nothing is left when all calls have ended.
    #[test]
    fn memory_is_bounded(
        steps in prop::collection::vec((any_frame(), 0..8_u8), 1..60),
    ) {
        let limits = Limits { max_concurrent_streams: 8, window: 70_000, ..Limits::default() };
        let mut wire = Wire::open(limits);
        let mut keys = Vec::new();
        for (bytes, action) in steps {
            if wire.send(&bytes).is_err() {
                break;
            }
            if action > 3 && let Some((key, ..)) = wire.accept() {
                keys.push(key);
            }
            if let Some(key) = keys.last().copied() {
                match action {
                    0 => drop(wire.engine.poll_body(key, &no_waker())),
                    1 => wire.engine.drop_call(key),
                    2 => drop(wire.engine.send_message(key, 5, |out| out.extend([7; 5]))),
                    3 => wire.engine.release(key, 5),
                    4 => wire.engine.drop_body(key),
                    5 => drop(wire.engine.send_head(key, 200, std::iter::empty(), true)),
                    _ => {}
                }
            }
            prop_assert!(wire.memory() < 40_000, "{} bytes", wire.memory());
            prop_assert!(wire.engine.streams.len() <= 8);
        }
        wire.engine.end(Error::closed());
        prop_assert!(wire.engine.is_idle());
        prop_assert_eq!(wire.engine.body_bytes(), 0);
    }
}
