//! The rate-limit protocol, whatever carries it: bytes or JSON to a decision, and back.

mod decode;
mod encode;
pub(super) mod handler;
pub mod in_process;
pub(super) mod json;
