//! gRPC health (`grpc.health.v1.Health`): the same honest answer under both names.

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::server::lifecycle::{Lifecycle, Phase};

/// The whole server, and the name under which Envoy's users have always asked.
const NAMES: [&str; 2] = ["", "ratelimit"];

/// Keeps gRPC health up to date.
pub(in crate::server) struct Reporter {
    reporter: HealthReporter,
}

impl Reporter {
    /// A reporter, and the service that tells what it reports.
    pub(in crate::server) fn new() -> (Reporter, HealthServer<HealthService>) {
        let reporter = HealthReporter::new();
        let service = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
        (Reporter { reporter }, service)
    }

    /// Says "not serving", until [`follow`](Self::follow) knows better.
    pub(in crate::server) async fn start(&self) {
        self.report(false).await;
    }

    /// Reports every change of readiness until the server stops. Then ends all watches, because a
    /// watcher's connection would never drain.
    pub(in crate::server) async fn follow(mut self, life: &Lifecycle) {
        let mut changes = life.changes();
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
