//! Black-box tests: the real binary, used like Envoy, a browser and a person use it.

mod accuracy;
mod admin;
mod bench;
mod cli;
mod compat;
mod counters;
mod docs;
mod envoy;
mod gzip;
mod headers;
mod hostile;
mod json;
mod leases;
mod metrics;
mod openapi;
mod readme;
mod reload;
mod rolling;
mod secrets;
mod services;
mod startup;
mod tls;
mod traces;
mod vectors;
mod wire;

#[allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#[path = "../support"]
mod support {
    pub(crate) mod certificates;
    pub(crate) mod collector;
    pub(crate) mod envoy;
    pub(crate) mod http;
    pub(crate) mod process;
    pub(crate) mod promtool;
    pub(crate) mod rls;
    pub(crate) mod secret;
    pub(crate) mod vectors;
    pub(crate) mod wait;
    pub(crate) mod weir;
    pub(crate) mod window_edge;
}
