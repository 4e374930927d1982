//! The functions of the fuzz targets; `tests/mutation` runs the same ones without a fuzzer.

pub mod files;
pub mod requests;
