//! Black-box tests: the real binary, asked as Envoy, a browser and a person ask it.

mod admin;
mod bench;
mod cli;
mod compat;
mod counters;
mod envoy;
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
mod support;
mod tls;
mod traces;
