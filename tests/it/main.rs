//! Black-box tests: the real binary, asked as Envoy, a browser and a person ask it.

mod admin;
mod cli;
mod compat;
mod envoy;
mod headers;
mod hostile;
mod json;
mod leases;
mod readme;
mod rolling;
mod services;
mod startup;
mod support;
mod tls;
