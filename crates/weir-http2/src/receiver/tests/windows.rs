//! Flow control in both directions (RFC 9113, section 5.2).

use std::task::Poll;

use super::*;

fn update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

fn settings(setting: u8, value: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&[0, setting], &value.to_be_bytes()[..]].concat())
}

#[test]
fn data_over_a_window_is_an_error() {
    let mut wire = Wire::open(Limits { window: 70_000, ..Limits::default() });
    let piece = vec![7; 14_000];
    wire.send(&request(1, 0)).unwrap();
    for _ in 0..5 {
        wire.send(&data(1, 0, &piece)).unwrap();
    }
    assert_eq!(wire.sent(), []);
    assert_eq!(wire.send(&data(1, 0, b"x")), Err(Reason::FLOW_CONTROL_ERROR));

    // Padding counts, and opens the windows again at once.
    let mut wire = Wire::open(Limits { window: 70_000, ..Limits::default() });
    wire.send(&request(1, 0)).unwrap();
    let padded = frame(kind::DATA, flag::PADDED, 1, &[&[255], &[0; 255][..]].concat());
    (0..1000).for_each(|_| {
        wire.send(&padded).unwrap_or_else(|reason| panic!("{reason}"));
        wire.receiver.budget.add_call();
    });
    assert!(wire.kinds().contains(&(kind::WINDOW_UPDATE, 1)));
}

/// A reset opens no window, so a client that respects the windows has nothing more to send.
#[test]
fn late_data_is_bounded_by_the_window() {
    let limits = Limits { window: 70_000, ..Limits::default() };
    let piece = vec![7; 14_000];
    // How many pieces of DATA pass after the stream was reset: first `before` pieces come.
    for (before, late) in [(0, 5), (2, 3), (5, 0)] {
        let mut wire = Wire::open(limits);
        wire.send(&request(1, 0)).unwrap();
        let (key, ..) = wire.accept().unwrap();
        (0..before).for_each(|_| wire.send(&data(1, 0, &piece)).unwrap());
        wire.engine.drop_call(key);
        let passed = (0..9).take_while(|_| wire.send(&data(1, 0, &piece)).is_ok()).count();
        assert_eq!(passed, late, "{before}");
        assert_eq!(wire.send(&data(1, 0, &piece)), Err(Reason::FLOW_CONTROL_ERROR));
    }
    // Each stream that is reset has its window, and a refused one too.
    let mut wire = Wire::open(Limits { max_concurrent_streams: 1, ..limits });
    wire.send(&[request(1, 0), request(3, 0), request(5, 0)].concat()).unwrap();
    let late = [3, 5].map(|stream| (0..5).all(|_| wire.send(&data(stream, 0, &piece)).is_ok()));
    assert_eq!(late, [true; 2]);
    assert_eq!(wire.send(&data(5, 0, b"x")), Err(Reason::FLOW_CONTROL_ERROR));
}

#[test]
fn windows_open_when_data_was_read() {
    let mut wire = Wire::open(Limits { window: 70_000, ..Limits::default() });
    wire.send(&[request(1, 0), request(3, 0)].concat()).unwrap();
    let (key, ..) = wire.accept().unwrap();
    let (other, ..) = wire.accept().unwrap();
    let read = |wire: &mut Wire, key| match wire.engine.poll_body(key, &no_waker()) {
        Poll::Ready(Ok(Some(body))) => body.len() as u32,
        other => panic!("{other:?}"),
    };
    wire.send(&data(1, 0, &[7; 16_000])).unwrap();
    wire.send(&data(1, 0, &[7; 16_000])).unwrap();
    assert_eq!(read(&mut wire, key), 32_000);
    wire.engine.release(key, 32_000);
    assert_eq!(wire.sent(), [], "less than half of the window");
    wire.send(&data(1, 0, &[7; 4_000])).unwrap();
    assert_eq!(read(&mut wire, key), 4_000);
    wire.engine.release(key, 4_000);
    wire.engine.release(key, 4_000);
    let bytes = 36_000_u32.to_be_bytes().to_vec();
    let updates = [(kind::WINDOW_UPDATE, 0, 1, bytes.clone()), (kind::WINDOW_UPDATE, 0, 0, bytes)];
    assert_eq!(wire.sent(), updates, "the second release exceeds what was received");
    // Data that is never read opens the window of the connection when its call ends.
    for _ in 0..4 {
        wire.send(&data(3, 0, &[7; 10_000])).unwrap();
    }
    wire.engine.drop_body(other);
    assert_eq!(wire.kinds(), [(kind::WINDOW_UPDATE, 3), (kind::WINDOW_UPDATE, 0)]);
    for _ in 0..4 {
        wire.send(&data(3, 0, &[7; 10_000])).unwrap();
    }
    assert_eq!(wire.kinds(), [(kind::WINDOW_UPDATE, 3), (kind::WINDOW_UPDATE, 0)]);
}

#[test]
fn responses_wait_for_the_windows_of_the_client() {
    let mut wire = Wire::open(Limits::default());
    wire.send(&[settings(4, 10), request(1, flag::END_STREAM)].concat()).unwrap();
    wire.sent();
    let (key, ..) = wire.accept().unwrap();
    assert_eq!(wire.engine.send_message(key, 11, |_| panic!("no room")), Ok(false));
    assert_eq!(wire.engine.room(key), 10);
    wire.engine.send_data(key, &[7; 10], false).unwrap();
    assert!(wire.engine.poll_room(key, &no_waker()).is_pending());
    wire.send(&update(1, 5)).unwrap();
    assert_eq!(wire.engine.room(key), 5);
    // A smaller initial window makes the window negative.
    wire.send(&settings(4, 3)).unwrap();
    assert_eq!(wire.engine.room(key), 0);
    wire.send(&update(1, 2)).unwrap();
    assert_eq!(wire.engine.room(key), 0);
    wire.send(&update(1, 1)).unwrap();
    assert_eq!(wire.engine.room(key), 1);
    wire.send(&settings(4, (1 << 31) - 1)).unwrap();
    wire.sent();
    assert_eq!(wire.engine.room(key), 65_525);
    assert_eq!(wire.send(&update(0, (1 << 31) - 1)), Err(Reason::FLOW_CONTROL_ERROR));
}

#[test]
fn responses_wait_until_the_output_was_written() {
    let mut wire = Wire::open(Limits { output_bytes: 1000, ..Limits::default() });
    wire.send(&request(1, flag::END_STREAM)).unwrap();
    let (key, ..) = wire.accept().unwrap();
    assert_eq!(wire.engine.room(key), 1000);
    wire.engine.send_data(key, &[7; 800], false).unwrap();
    assert_eq!(wire.engine.room(key), 1000 - 809);
    wire.engine.send_data(key, &[7; 191], false).unwrap();
    assert!(wire.engine.poll_room(key, &no_waker()).is_pending());
    wire.sent();
    assert_eq!(wire.engine.room(key), 1000);
}

#[test]
fn a_window_of_a_new_setting_may_overflow() {
    let mut wire = Wire::open(Limits::default());
    wire.send(&[request(1, 0), update(1, 1 << 30)].concat()).unwrap();
    let large = settings(4, (1 << 31) - 1);
    assert_eq!(wire.send(&large), Err(Reason::FLOW_CONTROL_ERROR));
}
