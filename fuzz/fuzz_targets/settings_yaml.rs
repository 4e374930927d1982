//! Loads any bytes as a settings file and an environment.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    weir_fuzz::settings::yaml(bytes);
});
