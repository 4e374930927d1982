//! Sends any bytes as the client of a TLS handshake.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weir_fuzz::tls::Port;

static PORT: LazyLock<Port> =
    LazyLock::new(|| Port::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tls"))));

fuzz_target!(|bytes: &[u8]| {
    PORT.hello(bytes);
});
