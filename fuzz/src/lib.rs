//! The functions of the fuzz targets; `tests/random_inputs` runs the same ones without a fuzzer.

pub mod files;
pub mod http2;
pub mod plans;
pub mod regexes;
pub mod replies;
pub mod requests;
pub mod responses;
pub mod settings;
pub mod tls;
