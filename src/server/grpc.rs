//! gRPC over HTTP/2: workers, connections, calls and services.

mod body_error;
mod call_head;
mod call_memory;
mod connection;
mod connection_calls;
pub(super) mod connection_memory;
mod control_frames;
mod dispatch;
mod framing;
pub mod fuzz_driver;
mod io;
pub(super) mod memory_budget;
mod premature_resets;
pub(super) mod rate_limit_handler;
mod read_budget;
mod request_body;
mod request_inbox;
mod response;
pub(super) mod should_rate_limit;
mod status;
mod streaming_call;
mod timeout;
pub(super) mod tonic_services;
pub(super) mod worker;
