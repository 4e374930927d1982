//! Frame headers: nine bytes before each payload (RFC 9113, section 4.1).

use crate::Reason;

/// Bytes of a frame header.
pub(crate) const HEADER_BYTES: usize = 9;

/// The largest payload in bytes. This server announces no other maximum, and sends no larger frame
/// (RFC 9113, section 4.2).
pub(crate) const PAYLOAD_MAX: usize = 16_384;

/// Frame types (RFC 9113, section 6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
}

/// Frame flags.
pub(crate) mod flag {
    /// Of DATA and HEADERS.
    pub(crate) const END_STREAM: u8 = 0x1;
    /// Of SETTINGS and PING.
    pub(crate) const ACK: u8 = 0x1;
    /// Of HEADERS and CONTINUATION.
    pub(crate) const END_HEADERS: u8 = 0x4;
    /// Of DATA and HEADERS.
    pub(crate) const PADDED: u8 = 0x8;
    /// Of HEADERS.
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// The header of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Bytes of the payload.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// The stream without the reserved bit; 0 for the connection.
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// The header at the start of `bytes`; `None` if it is incomplete.
    pub(crate) fn read(bytes: &[u8]) -> Option<FrameHeader> {
        let (&[a, b, c, kind, flags, stream @ ..], _) =
            bytes.split_first_chunk::<HEADER_BYTES>()?;
        Some(FrameHeader {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        })
    }

    /// Appends the header to `out`.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        out.extend_from_slice(&[a, b, c, self.kind, self.flags, d, e, f, g]);
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame to `out`.
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    FrameHeader { length: payload.len(), kind, flags, stream }.write(out);
    out.extend_from_slice(payload);
}

/// Appends RST_STREAM to `out` (RFC 9113, section 6.4).
pub(crate) fn write_reset(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    write(out, kind::RST_STREAM, 0, stream, &reason.0.to_be_bytes());
}

/// Appends WINDOW_UPDATE to `out` (RFC 9113, section 6.9).
pub(crate) fn write_window_update(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    write(out, kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

/// The payload without padding (RFC 9113, section 6.1).
pub(crate) fn unpadded(header: FrameHeader, payload: &[u8]) -> Result<&[u8], Reason> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(Reason::FRAME_SIZE_ERROR)?;
    let length = rest.len().checked_sub(usize::from(padding)).ok_or(Reason::PROTOCOL_ERROR)?;
    Ok(&rest[..length])
}

/// The four bytes of `payload` as a number.
pub(crate) fn number(payload: &[u8]) -> Result<u32, Reason> {
    let bytes = payload.try_into().map_err(|_| Reason::FRAME_SIZE_ERROR)?;
    Ok(u32::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = FrameHeader { length: 0x01_02_03, kind: 9, flags: 4, stream: 0x7fff_fffe };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 9, 4, 0x7f, 0xff, 0xff, 0xfe]);
        assert_eq!(FrameHeader::read(&bytes), Some(header));
        assert_eq!(FrameHeader::read(&bytes[..8]), None);
        bytes[5] = 0xff;
        assert_eq!(FrameHeader::read(&bytes), Some(header), "the reserved bit is ignored");
    }

    #[test]
    fn padding_is_removed() {
        let header = |flags| FrameHeader { length: 0, kind: 0, flags, stream: 1 };
        type Row = (u8, &'static [u8], Result<&'static [u8], Reason>);
        let table: [Row; 6] = [
            (0, b"\x01abc", Ok(b"\x01abc")),
            (flag::PADDED, b"\x01abc", Ok(b"ab")),
            (flag::PADDED, b"\x03abc", Ok(b"")),
            (flag::PADDED, b"\x00", Ok(b"")),
            (flag::PADDED, b"\x04abc", Err(Reason::PROTOCOL_ERROR)),
            (flag::PADDED, b"", Err(Reason::FRAME_SIZE_ERROR)),
        ];
        for (flags, payload, expected) in table {
            assert_eq!(unpadded(header(flags), payload), expected, "{payload:?}");
        }
    }
}
