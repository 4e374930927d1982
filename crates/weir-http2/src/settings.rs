//! SETTINGS frames (RFC 9113, section 6.5).

use crate::frame::{self, PAYLOAD_MAX, kind};
use crate::{Limits, Reason};

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// Bytes of one setting: its number and its value.
const SETTING_BYTES: usize = 6;

/// The settings of a client that concern a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerSettings {
    /// The send window of a new stream.
    pub(crate) initial_window: u32,
    /// The size of the client's header table, if it has changed.
    pub(crate) header_table: Option<u32>,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings { initial_window: 65_535, header_table: None }
    }
}

impl PeerSettings {
    /// Applies the payload of a SETTINGS frame.
    pub(crate) fn apply(&mut self, payload: &[u8]) -> Result<(), Reason> {
        let (settings, rest) = payload.as_chunks::<SETTING_BYTES>();
        if !rest.is_empty() {
            return Err(Reason::FRAME_SIZE_ERROR);
        }
        for &[a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(value);
            match u16::from_be_bytes([a, b]) {
                HEADER_TABLE_SIZE => {
                    // The smallest of several matters (RFC 7541, section 4.2).
                    self.header_table = Some(self.header_table.map_or(value, |one| one.min(value)));
                }
                ENABLE_PUSH if value > 1 => return Err(Reason::PROTOCOL_ERROR),
                INITIAL_WINDOW_SIZE if value > i32::MAX as u32 => {
                    return Err(Reason::FLOW_CONTROL_ERROR);
                }
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                MAX_FRAME_SIZE if !(PAYLOAD_MAX as u32..1 << 24).contains(&value) => {
                    return Err(Reason::PROTOCOL_ERROR);
                }
                // The others concern pushes, or larger frames than this server sends.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends the SETTINGS frame of this server to `out`.
pub(crate) fn write(out: &mut Vec<u8>, limits: &Limits) {
    let mut payload = Vec::with_capacity(3 * SETTING_BYTES);
    for (setting, value) in [
        (MAX_CONCURRENT_STREAMS, limits.max_concurrent_streams),
        (INITIAL_WINDOW_SIZE, limits.window),
        (MAX_HEADER_LIST_SIZE, limits.max_header_bytes),
    ] {
        payload.extend_from_slice(&setting.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame::write(out, kind::SETTINGS, 0, 0, &payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(settings: &[(u16, u32)]) -> Result<PeerSettings, Reason> {
        let mut payload = Vec::new();
        for (setting, value) in settings {
            payload.extend_from_slice(&setting.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut peer = PeerSettings::default();
        peer.apply(&payload).map(|()| peer)
    }

    #[test]
    fn settings_are_checked() {
        let table = [
            (&[(2, 2)][..], Reason::PROTOCOL_ERROR),
            (&[(4, 1 << 31)], Reason::FLOW_CONTROL_ERROR),
            (&[(5, 16_383)], Reason::PROTOCOL_ERROR),
            (&[(5, 1 << 24)], Reason::PROTOCOL_ERROR),
        ];
        for (settings, reason) in table {
            assert_eq!(apply(settings), Err(reason), "{settings:?}");
        }
        for length in 1..6 {
            let applied = PeerSettings::default().apply(&[0; 6][..length]);
            assert_eq!(applied, Err(Reason::FRAME_SIZE_ERROR));
        }
    }

    #[test]
    fn the_last_value_of_a_setting_counts() {
        let settings = [(4, 1), (1, 100), (2, 0), (4, 7), (1, 200), (5, 16_384), (99, 5), (3, 0)];
        let expected = PeerSettings { initial_window: 7, header_table: Some(100) };
        assert_eq!(apply(&settings), Ok(expected));
    }
}
