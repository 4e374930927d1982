//! gRPC: `envoy.service.ratelimit.v3.RateLimitService`.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::descriptor::Bounds;
use crate::proto::{RateLimitRequest, RateLimitResponse, RateLimitService};

use super::decide::{Answer, Decide, Refusal, answer, caller};
use super::delivery::Undelivered;
use super::patience;

/// The service: everything but the decision is somebody else's.
pub(super) struct Rls<D> {
    pub(super) decider: Arc<D>,
    pub(super) bounds: Bounds,
}

#[tonic::async_trait]
impl<D: Decide> RateLimitService for Rls<D> {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (headers, _, message) = request.into_parts();
        let patience = patience::of(&headers);
        let caller = caller(&*self.decider, headers.as_ref());
        let Answer { response, grant } =
            answer(&*self.decider, &self.bounds, &message, patience, caller).await?;
        let mut response = Response::new(response);
        if let Some(grant) = grant {
            response.extensions_mut().insert(Undelivered::new(grant));
        }
        Ok(response)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match &refusal {
            Refusal::Request(_) => Status::invalid_argument(refusal.to_string()),
            Refusal::Panicked => Status::internal(refusal.to_string()),
        }
    }
}
