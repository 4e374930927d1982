//! Tests of the settings of the listeners, and of envoyproxy/ratelimit's variables of TLS.

use super::{NO_FILE, envoy_ratelimit_env, errors, run, value_of};
use crate::settings::Flags;

/// A value other than the default for each setting of this file, as text.
pub(super) const OTHERS: [(&str, &str); 34] = [
    ("grpc.listen", "127.0.0.1:1"),
    ("grpc.workers", "3"),
    ("http.listen", "127.0.0.1:2"),
    ("grpc.tls_cert", "tls.crt"),
    ("grpc.tls_key", "tls.key"),
    ("grpc.tls_client_ca", "ca.crt"),
    ("grpc.tls_client_cert", "optional"),
    ("grpc.tls_client_san", "envoy.example"),
    ("grpc.fast_path", "false"),
    ("grpc.max_message_bytes", "1024"),
    ("grpc.max_header_bytes", "8192"),
    ("grpc.max_concurrent_streams", "7"),
    ("grpc.max_buffered_bytes", "1048576"),
    ("grpc.max_pending_resets", "8"),
    ("grpc.max_control_frames", "99"),
    ("grpc.max_connections", "10"),
    ("grpc.max_connections_per_peer", "11"),
    ("grpc.max_handshakes", "12"),
    ("grpc.handshake_timeout", "1s"),
    ("grpc.call_timeout", "2s"),
    ("grpc.write_timeout", "3s"),
    ("grpc.keepalive_interval", "off"),
    ("grpc.keepalive_timeout", "4s"),
    ("grpc.max_connection_age", "off"),
    ("grpc.max_connection_age_grace", "5s"),
    ("grpc.max_connection_idle", "6m"),
    ("http.max_body_bytes", "1024"),
    ("http.max_head_bytes", "8192"),
    ("http.head_timeout", "1s"),
    ("http.request_timeout", "2s"),
    ("http.max_connection_age", "3s"),
    ("http.max_connections", "4"),
    ("http.max_connections_per_peer", "off"),
    ("admin.max_connections", "5"),
];

#[test]
fn envoy_ratelimit_tls_variables_need_their_switch() {
    let on = ("GRPC_SERVER_USE_TLS", "true");
    let cert = ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt");
    let key = ("GRPC_SERVER_TLS_KEY", "/certs/tls.key");
    let ca = ("GRPC_CLIENT_TLS_CACERT", "/certs/ca.crt");
    let san = ("GRPC_CLIENT_TLS_SAN", "envoy");
    let off = ("GRPC_SERVER_USE_TLS", "false");
    let table = [
        (vec![on, cert, key], "grpc.tls_cert", "/certs/tls.crt"),
        (vec![on, cert, key], "grpc.tls_key", "/certs/tls.key"),
        (vec![on, cert, key], "grpc.tls_client_ca", ""),
        (vec![on, cert, key, ca, san], "grpc.tls_client_ca", "/certs/ca.crt"),
        (vec![on, cert, key, ca, san], "grpc.tls_client_san", "envoy"),
        (vec![cert, key, ca], "grpc.tls_cert", ""),
        (vec![off, cert, key, ca], "grpc.tls_client_ca", ""),
        (vec![("GRPC_MAX_CONNECTION_AGE_GRACE", "9s")], "grpc.max_connection_age_grace", "9s"),
    ];
    for (env, path, meaning) in table {
        let loaded = run(NO_FILE, &env, Flags::default());
        assert_eq!(value_of(loaded, path), meaning, "{env:?}");
    }
    for env in [vec![on], vec![on, cert], vec![on, key], vec![("GRPC_SERVER_USE_TLS", "sometimes")]]
    {
        let lines = errors(NO_FILE, &env, Flags::default());
        let what = "set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY as well";
        assert!(
            lines[0].starts_with("GRPC_SERVER_USE_TLS=") && lines[0].contains(what),
            "{lines:?}"
        );
    }
    let file = "grpc: { tls_cert: a, tls_key: b }";
    assert_eq!(value_of(run(file, &[on], Flags::default()), "grpc.tls_cert"), "a");
    assert_eq!(envoy_ratelimit_env::TLS[0].0, on.0);
}
