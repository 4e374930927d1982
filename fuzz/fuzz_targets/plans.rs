//! Reads any bytes as plans and customers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    weir_fuzz::plans::files(bytes);
});
