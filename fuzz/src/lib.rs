//! The functions of the fuzz targets; `tests/random_inputs` runs the same ones without a fuzzer.

pub mod files;
pub mod requests;
