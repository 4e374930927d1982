//! Sends any bytes as a JSON request through the whole service.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weir_fuzz::requests::Service;

static SERVICE: LazyLock<Service> = LazyLock::new(Service::default);

fuzz_target!(|bytes: &[u8]| {
    SERVICE.json(bytes);
});
