//! A tower layer that limits HTTP requests by the decisions of weir.
//!
//! The layer maps a request to [`Descriptor`]s by a function of the application, and asks weir over a channel of
//! tonic. A request over its limit gets status 429. Without a decision within the deadline, requests pass,
//! unless [`RateLimitLayer::on_failure`] decides otherwise.
//!
//! ```no_run
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use http::{Request, Response};
//! use tonic::transport::Endpoint;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use weir_tower::{Descriptor, FailureMode, RateLimitLayer};
//!
//! # async fn serve(request: Request<String>) -> Result<Response<String>, Infallible> {
//! // One channel for the whole process: its clones share a connection.
//! let channel = Endpoint::from_static("http://weir:8081")
//!     .connect_timeout(Duration::from_secs(5))
//!     .http2_keep_alive_interval(Duration::from_secs(30))
//!     .keep_alive_timeout(Duration::from_secs(5))
//!     .connect_lazy();
//! let by_user = |request: &Request<String>| match request.headers().get("x-user") {
//!     Some(user) => vec![Descriptor::new("user", String::from_utf8_lossy(user.as_bytes()))],
//!     None => Vec::new(),
//! };
//! let limit = RateLimitLayer::new(channel, "demo", by_user)
//!     .deadline(Duration::from_millis(50))
//!     .on_failure(|status| {
//!         eprintln!("no decision: {status}");
//!         FailureMode::Pass
//!     });
//! let service = ServiceBuilder::new().layer(limit).service(service_fn(
//!     |_: Request<String>| async { Ok::<_, Infallible>(Response::new(String::from("served"))) },
//! ));
//! service.oneshot(request).await
//! # }
//! ```
//!
//! It depends neither on weir nor on generated code: any server of Envoy's `RateLimitService` will do.

mod call;
mod descriptor;
mod layer;
mod messages;
mod service;
#[cfg(test)]
mod tests;

pub use descriptor::Descriptor;
pub use layer::{DEFAULT_DEADLINE, FailureMode, RateLimitLayer};
pub use service::RateLimit;
