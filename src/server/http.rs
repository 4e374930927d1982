//! HTTP/1: the connection server, the routes of the HTTP and admin ports, the JSON thread, and the
//! pages.

pub(super) mod admin;
mod awaited_body;
mod body;
mod host;
pub(super) mod http1;
mod io;
pub(super) mod json_thread;
pub(super) mod metrics_listener;
pub(super) mod page;
mod permits;
pub(super) mod routes;
