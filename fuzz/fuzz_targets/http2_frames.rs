//! Sends any bytes as the client of an HTTP/2 connection.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    weir_fuzz::http2::frames(bytes);
});
