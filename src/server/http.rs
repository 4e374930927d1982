//! HTTP/1: the connection server, the routes of the HTTP and admin ports, the JSON thread, and the
//! metrics page.

pub(super) mod admin;
mod body;
mod host;
pub(super) mod http1;
pub(super) mod json_thread;
pub(super) mod metrics_listener;
pub(super) mod metrics_page;
pub(super) mod routes;
