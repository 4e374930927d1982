//! gRPC over HTTP/2: workers, connections, calls and services.

mod body_error;
pub(super) mod budgeted_handler;
mod call_head;
mod connection;
mod connection_calls;
mod dispatch;
mod framing;
#[cfg(feature = "fuzz")]
pub mod fuzz_harness;
mod header_timeout;
mod io;
pub(super) mod memory;
mod method;
pub(super) mod rate_limit_quota;
mod read_throttle;
mod request_body;
mod request_fields;
mod response;
pub(super) mod should_rate_limit;
mod status;
mod streaming_call;
mod timeout;
pub(super) mod tonic_services;
pub(super) mod worker;
