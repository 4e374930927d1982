//! gRPC over HTTP/2: workers, connections, calls and services.

mod body_error;
mod connection;
mod control_frames;
mod dispatch;
mod framing;
pub mod in_process;
mod io;
pub(super) mod memory_budget;
pub(super) mod rate_limit_handler;
mod read_budget;
mod request_body;
mod response;
pub(super) mod should_rate_limit;
mod status;
mod timeout;
pub(super) mod tonic_services;
pub(super) mod worker;
