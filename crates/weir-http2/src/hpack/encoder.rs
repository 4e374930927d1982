//! Encodes the header blocks of responses (RFC 7541, section 6).
//!
//! Nearly every gRPC response has `content-type: application/grpc`, and `grpc-status: 0` in its
//! trailers. These two fields are stored in the client's table, and all others are literals. So the
//! state of the table is a number from 0 to 2.

use super::integer;

const CONTENT_TYPE: &[u8] = b"content-type";
const GRPC: &[u8] = b"application/grpc";
const GRPC_STATUS: &[u8] = b"grpc-status";
const OK: &[u8] = b"0";

/// The size of the client's table before it announces another.
const TABLE_BYTES: u32 = 4096;

/// The encoder of one connection. Blocks must be sent in the order in which they were encoded.
#[derive(Debug)]
pub(crate) struct ResponseEncoder {
    /// How many of the two fields are stored: `content-type`, then `grpc-status`.
    stored: u8,
    /// Whether fields may be stored.
    stores: bool,
    /// The client has reduced its table, and the next block must confirm it.
    must_resize: bool,
}

impl ResponseEncoder {
    pub(crate) fn new() -> ResponseEncoder {
        ResponseEncoder { stored: 0, stores: true, must_resize: false }
    }

    /// The client's table has at most `bytes`. One that is smaller than the default is not used. A table
    /// of no bytes is announced once, and fits any later size (RFC 7541, section 4.2).
    pub(crate) fn resize(&mut self, bytes: u32) {
        if self.stores && bytes < TABLE_BYTES {
            (self.stored, self.stores, self.must_resize) = (0, false, true);
        }
    }

    /// Begins a block with `:status`.
    pub(crate) fn status(&mut self, out: &mut Vec<u8>, status: u16) {
        self.begin(out);
        match status {
            200 => out.push(0x88),
            400 => out.push(0x8c),
            404 => out.push(0x8d),
            500 => out.push(0x8e),
            _ => {
                out.push(0x08);
                string(out, format!("{status:03}").as_bytes());
            }
        }
    }

    /// Begins a block without a status: trailers.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.must_resize) {
            out.push(0x20);
        }
    }

    /// Appends a field.
    pub(crate) fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        match (name, value) {
            (CONTENT_TYPE, GRPC) => self.content_type_grpc(out),
            (GRPC_STATUS, OK) => self.grpc_status_ok(out),
            _ => {
                out.push(0);
                string(out, name);
                string(out, value);
            }
        }
    }

    /// Appends `content-type: application/grpc`.
    pub(crate) fn content_type_grpc(&mut self, out: &mut Vec<u8>) {
        match self.stored {
            0 if self.stores => {
                out.push(0x5f);
                string(out, GRPC);
                self.stored = 1;
            }
            0 => {
                out.extend_from_slice(&[0x0f, 0x10]);
                string(out, GRPC);
            }
            stored => out.push(0xbd + stored),
        }
    }

    /// Appends `grpc-status: 0`.
    pub(crate) fn grpc_status_ok(&mut self, out: &mut Vec<u8>) {
        match self.stored {
            2 => out.push(0xbe),
            stored => {
                out.push(if stored == 1 { 0x40 } else { 0 });
                string(out, GRPC_STATUS);
                string(out, OK);
                self.stored += stored;
            }
        }
    }
}

/// Appends a string without Huffman codes.
fn string(out: &mut Vec<u8>, text: &[u8]) {
    integer::write(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::hpack::Decoder;

    fn response(encoder: &mut ResponseEncoder) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.status(&mut out, 200);
        encoder.content_type_grpc(&mut out);
        encoder.grpc_status_ok(&mut out);
        out
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> String {
        let mut text = String::new();
        let visit = |_, name: &[u8], value: &[u8]| {
            text += &format!("{}={} ", name.escape_ascii(), value.escape_ascii());
            true
        };
        decoder.decode(block, visit).unwrap();
        text
    }

    const OK_RESPONSE: &str = ":status=200 content-type=application/grpc grpc-status=0 ";

    #[test]
    fn the_usual_fields_are_stored_once() {
        let (mut encoder, mut decoder) = (ResponseEncoder::new(), Decoder::new());
        assert_eq!(decoded(&mut decoder, &response(&mut encoder)), OK_RESPONSE);
        let second = response(&mut encoder);
        assert_eq!(second, [0x88, 0xbf, 0xbe]);
        assert_eq!(decoded(&mut decoder, &second), OK_RESPONSE);
    }

    #[test]
    fn a_status_may_come_before_a_content_type() {
        let (mut encoder, mut decoder, mut out) = (ResponseEncoder::new(), Decoder::new(), vec![]);
        encoder.grpc_status_ok(&mut out);
        assert_eq!(decoded(&mut decoder, &out), "grpc-status=0 ");
        for _ in 0..2 {
            assert_eq!(decoded(&mut decoder, &response(&mut encoder)), OK_RESPONSE);
        }
    }

    #[test]
    fn a_smaller_table_is_confirmed_once() {
        for bytes in [0, 103, 104, 4095] {
            let (mut encoder, mut decoder) = (ResponseEncoder::new(), Decoder::new());
            decoded(&mut decoder, &response(&mut encoder));
            encoder.resize(4096);
            assert_eq!(response(&mut encoder), [0x88, 0xbf, 0xbe]);
            encoder.resize(bytes);
            encoder.resize(bytes);
            let block = response(&mut encoder);
            assert_eq!(block[0], 0x20, "{bytes}");
            assert_eq!(decoded(&mut decoder, &block), OK_RESPONSE, "{bytes}");
            encoder.resize(4096);
            let block = response(&mut encoder);
            assert_eq!(block[0], 0x88);
            assert_eq!(decoded(&mut decoder, &block), OK_RESPONSE, "{bytes}");
        }
    }

    #[test]
    fn any_field_is_a_literal() {
        let (mut encoder, mut decoder, mut out) = (ResponseEncoder::new(), Decoder::new(), vec![]);
        encoder.status(&mut out, 415);
        encoder.field(&mut out, b"grpc-status", b"12");
        encoder.field(&mut out, b"grpc-message", &[b'x'; 200]);
        let expected = format!(":status=415 grpc-status=12 grpc-message={} ", "x".repeat(200));
        assert_eq!(decoded(&mut decoder, &out), expected);
    }
}
