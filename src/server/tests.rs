//! The whole server over loopback, asked by real clients.

mod grpc;
mod support;
