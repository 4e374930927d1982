//! The whole server over loopback, asked by real clients.

mod bounds;
mod grpc;
mod health;
mod http;
mod support;
