//! The rate-limit protocol, independent of the transport: protobuf or JSON in, a response out.

mod decode;
mod encode;
pub(super) mod handler;
pub mod in_process;
pub(super) mod json;
