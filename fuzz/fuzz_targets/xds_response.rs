//! Applies any bytes as a response of a server of rules by xDS.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    weir_fuzz::responses::xds(bytes);
});
