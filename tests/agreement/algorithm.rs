//! The library's reader of the table of vectors, which finds here what it uses there.

pub(crate) use weir::algorithm::{plan, report};

#[path = "../../src/algorithm/vectors.rs"]
pub(crate) mod vectors;
