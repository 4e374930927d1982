//! The error codes of HTTP/2 (RFC 9113, section 7).

use std::fmt;

/// The error code of a RST_STREAM or GOAWAY frame. Codes without a name are valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(pub u32);

impl Reason {
    /// No error: the stream or the connection ends in order.
    pub const NO_ERROR: Reason = Reason(0x0);
    /// The peer violated the protocol.
    pub const PROTOCOL_ERROR: Reason = Reason(0x1);
    /// This endpoint failed.
    pub const INTERNAL_ERROR: Reason = Reason(0x2);
    /// The peer sent more than a flow-control window allows.
    pub const FLOW_CONTROL_ERROR: Reason = Reason(0x3);
    /// A frame arrived on a stream that the peer had ended.
    pub const STREAM_CLOSED: Reason = Reason(0x5);
    /// A frame has an invalid size.
    pub const FRAME_SIZE_ERROR: Reason = Reason(0x6);
    /// The stream was not processed. Its client may repeat the request.
    pub const REFUSED_STREAM: Reason = Reason(0x7);
    /// The stream is not needed any more.
    pub const CANCEL: Reason = Reason(0x8);
    /// A header block is invalid.
    pub const COMPRESSION_ERROR: Reason = Reason(0x9);
    /// The peer exceeds a limit.
    pub const ENHANCE_YOUR_CALM: Reason = Reason(0xb);
}

/// The names of the codes, from 0.
const NAMES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "code {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_shown_by_name() {
        assert_eq!(Reason::ENHANCE_YOUR_CALM.to_string(), "ENHANCE_YOUR_CALM");
        assert_eq!(format!("{:?}", Reason::CANCEL), "CANCEL");
        assert_eq!(Reason(0x77).to_string(), "code 0x77");
    }
}
