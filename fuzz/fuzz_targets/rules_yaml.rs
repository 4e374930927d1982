//! Compiles any bytes as a rule file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    weir_fuzz::files::yaml(bytes);
});
