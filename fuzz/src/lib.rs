//! What the fuzz targets run; `tests/mutation` runs the same without a fuzzer.

pub mod files;
pub mod requests;
