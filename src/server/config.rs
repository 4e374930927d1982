//! The configuration of the server.

use crate::descriptor::RequestBounds;
use crate::settings::{
    AdminSettings, DrainSettings, GrpcSettings, HttpSettings, MetricsSettings, RlqsSettings,
    Settings,
};

/// The configuration of the server.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Settings of the gRPC listener.
    pub grpc: GrpcSettings,
    /// Settings of the HTTP listener.
    pub http: HttpSettings,
    /// Settings of the admin listener.
    pub admin: AdminSettings,
    /// Settings of the metrics listener: `listen` and `path`.
    pub metrics_listener: MetricsSettings,
    /// Settings of quota streams: `max_message_bytes`.
    pub rlqs: RlqsSettings,
    /// Delay and timeout of the drain at shutdown.
    pub drain: DrainSettings,
    /// Bounds on the size of a request.
    pub bounds: RequestBounds,
}

impl From<&Settings> for ServerConfig {
    fn from(settings: &Settings) -> ServerConfig {
        ServerConfig {
            grpc: settings.grpc.clone(),
            http: settings.http.clone(),
            admin: settings.admin.clone(),
            metrics_listener: settings.metrics.clone(),
            rlqs: settings.rlqs.clone(),
            drain: settings.drain.clone(),
            bounds: settings.request,
        }
    }
}

/// Denominator of the share of one client address in the connections of the admin listener, and of
/// the metrics listener: a quarter. The other addresses have room for the rest.
const ADMIN_PEER_SHARE: usize = 4;

impl ServerConfig {
    /// Maximum number of pages of the admin listener, and of the metrics listener, in memory: half of
    /// its connections. An address has at most a quarter of them, so it leaves room for others.
    pub(super) fn max_pages(&self) -> usize {
        (self.admin.max_connections / 2).max(1)
    }

    /// Connection limits of the admin listener and of the metrics listener.
    pub(super) fn admin_http_settings(&self) -> HttpSettings {
        let max_connections = self.admin.max_connections;
        let share = (max_connections / ADMIN_PEER_SHARE).max(1);
        let per_peer = self.http.max_connections_per_peer.map_or(share, |max| max.min(share));
        let max_connections_per_peer = Some(per_peer);
        HttpSettings { max_connections, max_connections_per_peer, ..self.http.clone() }
    }
}
