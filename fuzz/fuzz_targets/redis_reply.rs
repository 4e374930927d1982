//! Reads any bytes as the replies of a Redis server.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    weir_fuzz::replies::resp(bytes);
});
