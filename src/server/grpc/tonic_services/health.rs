//! gRPC health (`grpc.health.v1.Health`), reported under four service names.

use futures_util::StreamExt;
use futures_util::stream::Map;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

use crate::proto::grpc::health::v1::health_check_response::ServingStatus;
use crate::proto::grpc::health::v1::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};
use crate::server::grpc::memory::inbox::SMALL_REQUEST_MAX;
use crate::server::lifecycle::{Lifecycle, Phase};
use generated::health_server::{Health, HealthServer};

/// The server trait that tonic generates from `proto/`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/server/grpc.health.v1.rs"));
}

/// The service names: the empty name of the whole server, the name that envoyproxy/ratelimit uses,
/// and the names of both services in their protocols. All have the same status.
const NAMES: [&str; 4] = [
    "",
    "ratelimit",
    "envoy.service.ratelimit.v3.RateLimitService",
    "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
];

/// The health service. Its status is what the [`Reporter`] last reported.
pub(in crate::server) type HealthService = HealthServer<ReportedStatus>;

/// Updates the status of gRPC health. Dropping it ends all watches.
pub(in crate::server) struct Reporter(watch::Sender<ServingStatus>);

/// The status that was last reported.
pub(in crate::server) struct ReportedStatus(watch::Receiver<ServingStatus>);

impl Reporter {
    /// A reporter and its service, which is "not serving" until [`follow`](Self::follow) reports the
    /// application's health.
    pub(in crate::server) fn new() -> (Reporter, HealthService) {
        let (reporter, reported) = watch::channel(ServingStatus::NotServing);
        let service = HealthServer::new(ReportedStatus(reported))
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(SMALL_REQUEST_MAX);
        (Reporter(reporter), service)
    }

    /// Reports every change of readiness until the server stops. Then ends all watches, because a
    /// connection with an open watch would never drain.
    pub(in crate::server) async fn follow(self, lifecycle: &Lifecycle) {
        let mut changes = lifecycle.changes();
        loop {
            let (phase, health) = changes.now();
            let status =
                if health.ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            self.0.send_if_modified(|reported| std::mem::replace(reported, status) != status);
            if phase == Phase::Stopping {
                break;
            }
            changes.next().await;
        }
    }
}

#[tonic::async_trait]
impl Health for ReportedStatus {
    type WatchStream =
        Map<WatchStream<ServingStatus>, fn(ServingStatus) -> tonic::Result<HealthCheckResponse>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> tonic::Result<Response<HealthCheckResponse>> {
        if !is_known(&request.get_ref().service) {
            return Err(Status::not_found("unknown service name; List returns the known ones"));
        }
        Ok(Response::new(response(*self.0.borrow())))
    }

    async fn list(
        &self,
        _: Request<HealthListRequest>,
    ) -> tonic::Result<Response<HealthListResponse>> {
        let status = response(*self.0.borrow());
        let statuses = NAMES.into_iter().map(|name| (name.to_owned(), status)).collect();
        Ok(Response::new(HealthListResponse { statuses }))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> tonic::Result<Response<Self::WatchStream>> {
        // The protocol keeps a watch of an unknown name open.
        let respond: fn(ServingStatus) -> tonic::Result<HealthCheckResponse> =
            if is_known(&request.get_ref().service) {
                |status| Ok(response(status))
            } else {
                |_| Ok(response(ServingStatus::ServiceUnknown))
            };
        Ok(Response::new(WatchStream::new(self.0.clone()).map(respond)))
    }
}

fn is_known(service: &str) -> bool {
    NAMES.contains(&service)
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
