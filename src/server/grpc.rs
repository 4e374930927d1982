//! gRPC over HTTP/2: workers, connections, calls, and the services that answer them.

mod connection;
mod control_frames;
mod dispatch;
mod framing;
pub(super) mod health;
mod io;
pub(super) mod memory_budget;
mod read_budget;
pub(super) mod reflection;
mod request_body;
mod response;
pub(super) mod should_rate_limit;
mod timeout;
pub(super) mod worker;
