//! This module holds the configuration of the server: its settings, and what no setting can say.

use std::sync::Arc;

use super::metrics::ServerMetrics;
use super::tls::TlsAcceptor;
use crate::descriptor::Bounds;
use crate::settings::{
    AdminSettings, DrainSettings, GrpcSettings, HttpSettings, MetricsSettings, Settings,
};

/// The configuration of the server.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// The gRPC listener.
    pub grpc: GrpcSettings,
    /// The HTTP listener.
    pub http: HttpSettings,
    /// The admin listener.
    pub admin: AdminSettings,
    /// The metrics listener: `listen` and `path`.
    pub metrics: MetricsSettings,
    /// The drain at the end.
    pub drain: DrainSettings,
    /// The largest request.
    pub bounds: Bounds,
    /// TLS of the gRPC listener. None: plain text.
    pub tls: Option<TlsAcceptor>,
    /// The metrics of the listeners and their connections.
    pub server_metrics: Arc<ServerMetrics>,
}

impl From<&Settings> for ServerConfig {
    fn from(settings: &Settings) -> ServerConfig {
        ServerConfig {
            grpc: settings.grpc.clone(),
            http: settings.http.clone(),
            admin: settings.admin.clone(),
            metrics: settings.metrics.clone(),
            drain: settings.drain.clone(),
            bounds: settings.bounds,
            tls: None,
            server_metrics: Arc::default(),
        }
    }
}

impl ServerConfig {
    /// The limits of connections to the admin listener and to the metrics listener.
    pub(super) fn admin_limits(&self) -> HttpSettings {
        HttpSettings { max_connections: self.admin.max_connections, ..self.http.clone() }
    }
}
