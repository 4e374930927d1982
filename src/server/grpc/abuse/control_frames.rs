//! A limit on control frames: frames such as pings and settings that carry no call.
//!
//! h2 replies to each of them and does not limit their number. Here each frame takes one from a
//! budget, which calls and time refill. A usual client sends a few per call and a few per minute.
//! Acknowledgements cost one too: weir sends few frames that need one, and does not match them.

use std::time::Duration;

use tokio::time::Instant;

/// Size of a frame header: length (24 bits), type, flags, stream (RFC 9113, section 4.1).
const HEADER_BYTES: usize = 9;

/// Frames that one call adds to the budget: window updates, a reset and a ping.
const PER_CALL: u32 = 4;

/// Frames that one second adds to the budget.
const PER_SECOND: u32 = 100;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// The END_STREAM flag of DATA frames.
const END_STREAM: u8 = 1;
/// The END_HEADERS flag of HEADERS and CONTINUATION frames.
const END_HEADERS: u8 = 4;

/// Parses the frame headers of one connection and charges its budget.
#[derive(Debug)]
pub(in crate::server::grpc) struct ControlFrameLimiter {
    header: [u8; HEADER_BYTES],
    have: usize,
    payload_left: usize,
    is_in_header_block: bool,
    budget: u32,
    max: u32,
    filled_at: Option<Instant>,
}

impl ControlFrameLimiter {
    /// A limiter with a budget of `max` frames.
    pub(in crate::server::grpc) fn new(max: u32) -> ControlFrameLimiter {
        ControlFrameLimiter {
            header: [0; HEADER_BYTES],
            have: 0,
            payload_left: 0,
            is_in_header_block: false,
            budget: max,
            max,
            filled_at: None,
        }
    }

    /// Whether the headers of a call are incomplete: the last frame of them has begun, and was not
    /// the last of its block.
    pub(in crate::server::grpc) fn is_in_header_block(&self) -> bool {
        self.is_in_header_block
    }

    /// Counts the frames in `bytes`, which may start and end anywhere. Returns false once the
    /// budget is spent. Reads the clock only for frames that cost something.
    pub(in crate::server::grpc) fn read(
        &mut self,
        mut bytes: &[u8],
        now: impl Fn() -> Instant,
    ) -> bool {
        let mut within = true;
        loop {
            let skip = self.payload_left.min(bytes.len());
            self.payload_left -= skip;
            bytes = &bytes[skip..];
            if bytes.is_empty() {
                return within;
            }
            let take = (HEADER_BYTES - self.have).min(bytes.len());
            self.header[self.have..self.have + take].copy_from_slice(&bytes[..take]);
            self.have += take;
            bytes = &bytes[take..];
            if self.have == HEADER_BYTES {
                self.have = 0;
                within &= self.count(&now);
            }
        }
    }

    /// Charges the frame whose header is complete.
    fn count(&mut self, now: impl Fn() -> Instant) -> bool {
        let [a, b, c, kind, flags, ..] = self.header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.payload_left = length;
        match kind {
            HEADERS => {
                self.is_in_header_block = flags & END_HEADERS == 0;
                self.budget = self.budget.saturating_add(PER_CALL).min(self.max);
            }
            // Flow-control windows and the header size bound the content of these frames.
            DATA if length > 0 || flags & END_STREAM != 0 => {}
            CONTINUATION => self.is_in_header_block = flags & END_HEADERS == 0,
            _ => return self.spend(now()),
        }
        true
    }

    fn spend(&mut self, now: Instant) -> bool {
        if self.budget == 0 {
            let since = self.filled_at.map_or(Duration::ZERO, |at| now.duration_since(at));
            let refill = u128::from(PER_SECOND) * since.as_millis() / 1000;
            self.budget = u32::try_from(refill).unwrap_or(u32::MAX).min(self.max);
            self.filled_at = None;
        }
        self.filled_at.get_or_insert(now);
        let left = self.budget.checked_sub(1);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// How often `frame` passes in a row, up to 1000 times.
    fn passing(frames: &mut ControlFrameLimiter, frame: &[u8], at: Instant) -> usize {
        (0..1000).take_while(|_| frames.read(frame, || at)).count()
    }

    #[test]
    fn control_frames_are_counted_wherever_bytes_are_cut() {
        let at = Instant::now();
        let flood = [frame(6, 0, &[0; 8]), frame(4, 0, &[]), frame(0, 0, &[])].concat();
        for cut in 1..flood.len() {
            let mut frames = ControlFrameLimiter::new(6);
            let bytes = flood.repeat(3);
            let passed = bytes.chunks(cut).take_while(|part| frames.read(part, || at)).count();
            assert!((6 * 9 + 2 * 8) / cut <= passed + 1, "cut by {cut}: too early");
            assert!(passed < bytes.len().div_ceil(cut), "cut by {cut}: not at all");
        }
    }

    #[test]
    fn calls_and_data_are_free() {
        let at = Instant::now();
        let free = [frame(1, 4, b"head"), frame(0, 0, b"data"), frame(0, 1, &[]), frame(9, 0, &[])];
        for frame in free {
            assert_eq!(passing(&mut ControlFrameLimiter::new(3), &frame, at), 1000, "{frame:?}");
        }
    }

    #[test]
    fn every_other_frame_type_costs_one() {
        let at = Instant::now();
        for kind in [2, 3, 4, 5, 6, 7, 8, 10, 255] {
            assert_eq!(
                passing(&mut ControlFrameLimiter::new(3), &frame(kind, 0, &[]), at),
                3,
                "type {kind}"
            );
        }
        for kind in [4, 6] {
            let acknowledgement = frame(kind, 1, &[0; 8]);
            let frames = &mut ControlFrameLimiter::new(3);
            assert_eq!(passing(frames, &acknowledgement, at), 3, "ACK of type {kind}");
        }
    }

    #[test]
    fn incomplete_headers_are_noticed() {
        let at = Instant::now();
        let mut frames = ControlFrameLimiter::new(100);
        for (bytes, is_in) in [
            (frame(1, 4, b"head"), false),
            (frame(1, 0, b"head"), true),
            (frame(9, 0, b"more"), true),
            (frame(9, 4, b"rest"), false),
            (frame(1, 1, b"head"), true),
        ] {
            assert!(frames.read(&bytes, || at));
            assert_eq!(frames.is_in_header_block(), is_in, "{bytes:?}");
        }
    }

    #[test]
    fn calls_and_seconds_refill_the_budget() {
        let at = Instant::now();
        let (ping, call) = (frame(6, 0, &[0; 8]), frame(1, 4, &[]));
        let mut frames = ControlFrameLimiter::new(150);
        assert_eq!(passing(&mut frames, &ping, at), 150);
        assert!(frames.read(&call, || at));
        assert_eq!(passing(&mut frames, &ping, at), 4);
        assert_eq!(passing(&mut frames, &ping, at + Duration::from_millis(500)), 50);
        assert_eq!(passing(&mut frames, &ping, at + Duration::from_secs(60)), 150);
        assert_eq!(passing(&mut frames, &call, at), 1000);
        assert_eq!(passing(&mut frames, &ping, at + Duration::from_secs(60)), 150);
    }
}
