//! The whole server over loopback, asked by real clients.

mod bounds;
mod delivery;
mod grpc;
mod health;
mod http;
mod pki;
mod support;
mod tls;
