//! The limits of a connection.

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The window of received data in bytes, of each stream and of the connection. From 65 535 to
    /// 2 147 483 647.
    pub window: u32,
    /// The most streams that may be open at a time. Others are refused (REFUSED_STREAM).
    pub max_concurrent_streams: u32,
    /// The most bytes of the header list of a request, with 32 bytes for each field (RFC 9113,
    /// section 6.5.2). A request with more gets status 431.
    pub max_header_bytes: u32,
    /// The most frames in a row that carry no call: pings, settings, window updates, resets, empty
    /// DATA, unknown ones. Each call adds four, and each second a hundred. More close the connection
    /// (ENHANCE_YOUR_CALM).
    pub max_control_frames: u32,
    /// The most calls that may be reset at a time before they were accepted. More close the connection
    /// (ENHANCE_YOUR_CALM). So do 32 times as many in a row.
    pub max_pending_resets: usize,
    /// The most streams that may be reset for errors of the client in the life of the connection. More
    /// close it (ENHANCE_YOUR_CALM).
    pub max_error_resets: u32,
    /// The bytes of output at which DATA frames wait until the client has read.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            window: 1 << 20,
            max_concurrent_streams: 1024,
            max_header_bytes: 16 * 1024,
            max_control_frames: 10_000,
            max_pending_resets: 1024,
            max_error_resets: 1024,
            output_bytes: 64 * 1024,
        }
    }
}
