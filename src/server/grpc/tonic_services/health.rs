//! gRPC health (`grpc.health.v1.Health`), reported under three service names.

use tonic::codec::CompressionEncoding;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{self, HealthReporter};

use crate::server::grpc::memory::inbox::SMALL_REQUEST_MAX;
use crate::server::lifecycle::{Lifecycle, Phase};

/// The service names: the empty name of the whole server, the name that envoyproxy/ratelimit uses,
/// and the name of the service in its protocol.
const NAMES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// The health service. Its status is what the [`Reporter`] last reported.
pub(in crate::server) type HealthService = HealthServer<server::HealthService>;

/// Updates the status of gRPC health.
pub(in crate::server) struct Reporter {
    reporter: HealthReporter,
}

impl Reporter {
    /// A reporter and its service.
    pub(in crate::server) fn new() -> (Reporter, HealthService) {
        let reporter = HealthReporter::new();
        let service = server::HealthService::from_health_reporter(reporter.clone());
        let service = HealthServer::new(service)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(SMALL_REQUEST_MAX);
        (Reporter { reporter }, service)
    }

    /// Reports "not serving", until [`follow`](Self::follow) reports the application's health.
    pub(in crate::server) async fn start(&self) {
        self.report(false).await;
    }

    /// Reports every change of readiness until the server stops. Then ends all watches, because a
    /// connection with an open watch would never drain.
    pub(in crate::server) async fn follow(mut self, lifecycle: &Lifecycle) {
        let mut changes = lifecycle.changes();
        let mut reported = false;
        loop {
            let (phase, health) = changes.now();
            if health.ready != reported {
                reported = health.ready;
                self.report(reported).await;
            }
            if phase == Phase::Stopping {
                break;
            }
            changes.next().await;
        }
        for name in NAMES {
            self.reporter.clear_service_status(name).await;
        }
    }

    async fn report(&self, ready: bool) {
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in NAMES {
            self.reporter.set_service_status(name, status).await;
        }
    }
}
