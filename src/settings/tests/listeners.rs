//! Tests of envoyproxy/ratelimit's variables of TLS.

use super::{NO_FILE, envoy_ratelimit_env, errors, run, value_of};
use crate::settings::Flags;

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
