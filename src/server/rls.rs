//! The rate-limit protocol, independent of the transport: protobuf or JSON in, a response out.

mod decode;
mod encode;
#[cfg(feature = "fuzz")]
pub mod fuzz_harness;
pub(super) mod handler;
pub(super) mod json;
