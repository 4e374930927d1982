//! Looks any value up among any regular expressions.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    weir_fuzz::regexes::lookup(bytes);
});
