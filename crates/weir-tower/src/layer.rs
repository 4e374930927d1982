//! The layer: what a service needs to ask for decisions.

use std::sync::Arc;
use std::time::Duration;

use tonic::Status;
use tonic::transport::Channel;
use tower_layer::Layer;

use crate::service::RateLimit;

/// The deadline of a call, unless [`RateLimitLayer::deadline`] sets another one.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// The longest deadline that the header `grpc-timeout` has digits for: 99 999 999 hours.
const MAX_DEADLINE: Duration = Duration::from_secs(99_999_999 * 60 * 60);

/// What happens to a request without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// The request passes.
    Pass,
    /// The request gets status 503.
    Stop,
}

/// Decides requests without a decision.
type OnFailure = Arc<dyn Fn(&Status) -> FailureMode + Send + Sync>;

/// Limits the requests of a service. `D` maps a request to its descriptors, and `C` is the channel.
#[derive(Clone)]
pub struct RateLimitLayer<D, C = Channel> {
    pub(crate) channel: C,
    pub(crate) domain: Arc<str>,
    pub(crate) descriptors: D,
    pub(crate) deadline: Duration,
    pub(crate) on_failure: OnFailure,
}

impl<D, C> RateLimitLayer<D, C> {
    /// A layer for the rules of `domain`. A request for which `descriptors` returns none passes, without a call.
    /// `channel` is cloned for each call, so its clones should share a connection.
    pub fn new(channel: C, domain: impl Into<Arc<str>>, descriptors: D) -> RateLimitLayer<D, C> {
        RateLimitLayer {
            channel,
            domain: domain.into(),
            descriptors,
            deadline: DEFAULT_DEADLINE,
            on_failure: Arc::new(|_: &Status| FailureMode::Pass),
        }
    }

    /// Sets the longest time of a call, with that of a new connection. More than the 99 999 999 hours that
    /// gRPC has digits for become that number.
    pub fn deadline(mut self, deadline: Duration) -> RateLimitLayer<D, C> {
        self.deadline = deadline.min(MAX_DEADLINE);
        self
    }

    /// Decides the requests for which the service does not. The status has the reason, which should be counted.
    /// Without this function, all of them pass.
    pub fn on_failure(
        mut self,
        decide: impl Fn(&Status) -> FailureMode + Send + Sync + 'static,
    ) -> RateLimitLayer<D, C> {
        self.on_failure = Arc::new(decide);
        self
    }
}

impl<S, D: Clone, C: Clone> Layer<S> for RateLimitLayer<D, C> {
    type Service = RateLimit<S, D, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit { inner, layer: self.clone() }
    }
}
