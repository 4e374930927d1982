//! The whole server over loopback, asked by real clients.

mod abuse;
mod bounds;
mod delivery;
mod grpc;
mod health;
mod http;
mod pki;
mod places;
mod protocol;
mod raw;
mod resets;
mod support;
mod tls;
mod upload;
