//! Tests of the library without the binary: they need its public items only, and no process.

mod accuracy;
mod chart_files;
mod comparison;
mod quota_wire;
mod vectors;
mod wire;
