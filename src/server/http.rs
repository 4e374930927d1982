//! HTTP/1: the server of all such ports, the routes of the HTTP port, and the page of metrics.

pub(super) mod metrics_listener;
pub(super) mod metrics_page;
pub(super) mod routes;
pub(super) mod server;
