//! The service as Envoy Gateway 1.9 deploys it: its environment, its certificates, and its user, who may
//! write nothing. Addresses and paths are those of the test.

use super::ads::{Ads, NODE};
use super::certificates::Certificates;
use super::weir::{Setup, Weir};

/// The user and the group of the container.
const USER: u32 = 65534;

/// The deployment: the binary as `ratelimit`, without arguments. One secret has the certificate of the
/// service for both, the calls of Envoy and the server of rules. `redis` is an address.
pub(crate) fn deployment(ads: &Ads, certificates: &Certificates, redis: &str) -> Setup {
    let path = |name: &str| certificates.path(name).display().to_string();
    let url = format!("localhost:{}", ads.address.port());
    let env = [
        ("RUNTIME_ROOT", "/data".to_owned()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit".to_owned()),
        ("RUNTIME_IGNOREDOTFILES", "true".to_owned()),
        ("RUNTIME_WATCH_ROOT", "false".to_owned()),
        ("LOG_LEVEL", "info".to_owned()),
        ("USE_STATSD", "false".to_owned()),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW".to_owned()),
        ("CONFIG_GRPC_XDS_SERVER_URL", url),
        ("CONFIG_GRPC_XDS_NODE_ID", NODE.to_owned()),
        ("GRPC_SERVER_USE_TLS", "true".to_owned()),
        ("GRPC_SERVER_TLS_CERT", path("client.crt")),
        ("GRPC_SERVER_TLS_KEY", path("client.key")),
        ("GRPC_SERVER_TLS_CA_CERT", path("ca.crt")),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true".to_owned()),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", path("client.crt")),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", path("client.key")),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", path("ca.crt")),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true".to_owned()),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("REDIS_URL", redis.to_owned()),
        ("USE_PROMETHEUS", "true".to_owned()),
        ("PROMETHEUS_ADDR", "127.0.0.1:0".to_owned()),
        ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml".to_owned()),
    ];
    let setup = env.iter().fold(Weir::image(), |setup, (name, value)| setup.env(name, value));
    setup.of_user(USER)
}
