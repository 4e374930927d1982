//! Tests of the whole server over loopback, with real and with hostile clients.

#[macro_use]
mod support;

mod client_addresses;
mod connection_limits;
mod delivery;
mod drain;
mod floods;
mod grpc;
mod gzip;
mod health;
mod hostile;
mod http;
mod http_connections;
mod http_memory;
mod kept_input;
mod memory_budget;
mod paths_agree;
mod pki;
mod protocol;
mod quota_client;
mod quota_limits;
mod quota_streams;
mod raw;
mod resets;
mod scripted_quotas;
pub(super) mod test_handlers;
mod tls;
