//! Tests of the whole server over loopback, with real and with hostile clients.

mod bounds;
mod delivery;
mod grpc;
mod health;
mod hostile;
mod http;
mod http_connections;
mod memory_budget;
mod pki;
mod protocol;
mod raw;
mod resets;
mod support;
pub(super) mod test_handlers;
mod tls;
