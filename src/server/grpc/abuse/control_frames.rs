//! A limit on control frames: frames such as pings and settings that carry no call.
//!
//! h2 replies to each of them and does not limit their number. Here each frame takes one from a
//! budget, which calls and time refill. A usual client sends a few per call and a few per minute.
//! Acknowledgements cost one too: weir sends few frames that need one, and does not match them.
//!
//! The other frames carry calls. They are counted here too, because h2 keeps memory for them.

use std::time::Duration;

use tokio::time::Instant;

use super::header_table::HeaderTable;

/// Size of a frame header: length (24 bits), type, flags, stream (RFC 9113, section 4.1).
const HEADER_BYTES: usize = 9;

/// Frames that one call adds to the budget: window updates, a reset and a ping.
const FRAMES_PER_CALL: u32 = 4;

/// Frames that one second adds to the budget.
const FRAMES_PER_SECOND: u32 = 100;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
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
    /// The stream of a header block whose END_HEADERS has not arrived.
    open_block: Option<u32>,
    /// The stream of the CONTINUATION frame that ends a header block, if this is the last frame.
    last_of_block: Option<u32>,
    call_frames: u64,
    heads: u64,
    table: HeaderTable,
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
            open_block: None,
            last_of_block: None,
            call_frames: 0,
            heads: 0,
            table: HeaderTable::default(),
            budget: max,
            max,
            filled_at: None,
        }
    }

    /// The stream whose headers are incomplete, if they have more than one frame.
    pub(in crate::server::grpc) fn incomplete_headers(&self) -> Option<u32> {
        let arriving = self.last_of_block.filter(|_| self.payload_left > 0);
        self.open_block.or(arriving)
    }

    /// The most bytes of input that h2 keeps, as [`HeaderTable::kept_bytes`].
    pub(in crate::server::grpc) fn kept_bytes(&self) -> u64 {
        self.table.kept_bytes()
    }

    /// The HEADERS and DATA frames since the last call of this method. h2 has a slot for each of
    /// them until its call has read it.
    pub(in crate::server::grpc) fn take_call_frames(&mut self) -> u64 {
        std::mem::take(&mut self.call_frames)
    }

    /// The HEADERS frames since the last call of this method. h2 has a stream for each of them, also
    /// for those that it refuses itself, until the response is written.
    pub(in crate::server::grpc) fn take_heads(&mut self) -> u64 {
        std::mem::take(&mut self.heads)
    }

    /// Counts the frames in `bytes`, which may start and end anywhere. Returns false once the
    /// budget is spent, for a push, and for a header without a name. Reads the clock only for frames
    /// that cost something.
    pub(in crate::server::grpc) fn read(
        &mut self,
        mut bytes: &[u8],
        now: impl Fn() -> Instant,
    ) -> bool {
        let mut within = true;
        loop {
            let (payload, rest) = bytes.split_at(self.payload_left.min(bytes.len()));
            self.payload_left -= payload.len();
            if !self.table.read(payload) {
                return false;
            }
            bytes = rest;
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
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let (bytes, stream) = (HEADER_BYTES + length, u32::from_be_bytes(stream) & 0x7fff_ffff);
        self.payload_left = length;
        self.last_of_block = None;
        self.table.begin_frame(bytes);
        match kind {
            HEADERS => {
                self.table.begin_headers(bytes, length, flags, stream);
                self.open_block = (flags & END_HEADERS == 0).then_some(stream);
                self.call_frames += 1;
                self.heads += 1;
                self.budget = self.budget.saturating_add(FRAMES_PER_CALL).min(self.max);
            }
            CONTINUATION => {
                self.table.begin_continuation(bytes, length);
                self.open_block = (flags & END_HEADERS == 0).then_some(stream);
                self.last_of_block = Some(stream);
            }
            // Flow-control windows and the header size bound the content of these frames.
            DATA if length > 0 || flags & END_STREAM != 0 => self.call_frames += 1,
            // No client may push (RFC 9113, section 8.4), and h2 would store what it pushes.
            PUSH_PROMISE => return false,
            _ => return self.spend(now()),
        }
        true
    }

    fn spend(&mut self, now: Instant) -> bool {
        if self.budget == 0 {
            let since = self.filled_at.map_or(Duration::ZERO, |at| now.duration_since(at));
            let refill = u128::from(FRAMES_PER_SECOND) * since.as_millis() / 1000;
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
        for kind in [2, 3, 4, 6, 7, 8, 10, 255] {
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
    fn a_push_is_refused() {
        let at = Instant::now();
        assert_eq!(passing(&mut ControlFrameLimiter::new(3), &frame(5, 4, &[0; 4]), at), 0);
    }

    #[test]
    fn a_header_without_a_name_is_refused() {
        let at = Instant::now();
        for flags in [0, END_STREAM, END_HEADERS] {
            let nameless = frame(1, flags, &[0, 0, 0x83, 0x44, 1, b'/']);
            assert_eq!(passing(&mut ControlFrameLimiter::new(3), &nameless, at), 0, "{flags}");
        }
    }

    #[test]
    fn incomplete_headers_are_noticed() {
        let at = Instant::now();
        let mut frames = ControlFrameLimiter::new(100);
        let last = frame(9, 4, b"rest");
        for (bytes, incomplete) in [
            (&frame(1, 4, b"head")[..], None),
            (&frame(1, 0, b"head")[..], Some(1)),
            (&frame(9, 0, b"more")[..], Some(1)),
            (&last[..12], Some(1)),
            (&last[12..], None),
            (&frame(1, 1, b"head")[..], Some(1)),
        ] {
            assert!(frames.read(bytes, || at));
            assert_eq!(frames.incomplete_headers(), incomplete, "{bytes:?}");
        }
    }

    #[test]
    fn frames_with_a_slot_in_h2_are_counted() {
        let at = Instant::now();
        let mut frames = ControlFrameLimiter::new(100);
        for (bytes, counts) in [
            (frame(1, 4, b"head"), (1, 1)),
            (frame(0, 0, b"data"), (1, 0)),
            (frame(0, 1, &[]), (1, 0)),
            (frame(0, 0, &[]), (0, 0)),
            (frame(9, 4, b"rest"), (0, 0)),
            (frame(6, 0, &[0; 8]), (0, 0)),
        ] {
            assert!(frames.read(&bytes, || at));
            assert_eq!((frames.take_call_frames(), frames.take_heads()), counts, "{bytes:?}");
        }
    }

    #[test]
    fn stored_headers_keep_their_buffer() {
        let at = Instant::now();
        let stored = frame(1, 4, &[0x44, 1, b'/']);
        for cut in 1..=stored.len() {
            let mut frames = ControlFrameLimiter::new(100);
            assert!(stored.chunks(cut).all(|part| frames.read(part, || at)));
            assert_eq!(frames.kept_bytes(), 8192, "cut by {cut}");
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
