//! Tests of rules by xDS as envoyproxy/ratelimit configures them, and of the environment that Envoy
//! Gateway sets.

use super::*;

/// The environment of Envoy Gateway 1.9 with Prometheus, tracing and TLS to Redis.
const ENVOY_GATEWAY: [(&str, &str); 32] = [
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("LOG_LEVEL", "info"),
    ("USE_STATSD", "false"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
    ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
    ("GRPC_SERVER_USE_TLS", "true"),
    ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
    ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
    ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "redis.redis-system.svc.cluster.local:6379"),
    ("REDIS_TLS", "true"),
    ("REDIS_TLS_CLIENT_CERT", "/redis-certs/tls.crt"),
    ("REDIS_TLS_CLIENT_KEY", "/redis-certs/tls.key"),
    ("USE_PROMETHEUS", "true"),
    ("PROMETHEUS_ADDR", ":19001"),
    ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
    ("TRACING_ENABLED", "true"),
    ("TRACING_SERVICE_NAME", "envoy-ratelimit"),
    ("TRACING_SERVICE_NAMESPACE", "envoy-gateway-system"),
    ("TRACING_SERVICE_INSTANCE_ID", "envoy-ratelimit-7c9f8d5b6-x2x4z"),
    ("TRACING_SAMPLING_RATE", "1.0"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel-collector.monitoring:4318"),
];

#[test]
fn the_environment_of_envoy_gateway_is_valid() {
    // The image starts the binary under the name `ratelimit`.
    let env = with_default_runtime_root(pairs(&ENVOY_GATEWAY));
    let loaded = load(&Flags::default(), &env).unwrap_or_else(|problems| panic!("{problems}"));
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    for name in ["GRPC_SERVER_TLS_CA_CERT", "REDIS_SOCKET_TYPE", "PROMETHEUS_MAPPER_YAML"] {
        assert!(warning.contains(name), "{warning}");
    }
    let shown = shown(&loaded.settings);
    for (path, value) in [
        ("rules.paths", "[]"),
        ("rules.start_without_rules", "true"),
        ("rules.xds.server", "envoy-gateway:18001"),
        ("rules.xds.node_id", "envoy-ratelimit"),
        ("rules.xds.tls", "true"),
        ("rules.xds.tls_ca", "/certs/ca.crt"),
        ("rules.xds.tls_cert", "/certs/tls.crt"),
        ("rules.xds.tls_key", "/certs/tls.key"),
        ("grpc.listen", "[::]:8081"),
        ("grpc.tls_cert", "/certs/tls.crt"),
        ("http.listen", "[::]:8080"),
        ("metrics.listen", "[::]:19001"),
        ("metrics.envoy_ratelimit_names", "true"),
        ("redis.url", "rediss://redis.redis-system.svc.cluster.local:6379"),
        ("redis.tls_cert", "/redis-certs/tls.crt"),
        ("store.kind", "redis"),
        ("tracing.enabled", "true"),
        ("tracing.sampling_rate", "1.0"),
        ("tracing.endpoint", "http://otel-collector.monitoring:4318/v1/traces"),
    ] {
        assert_eq!(shown[path], value, "{path}");
    }
}

#[test]
fn every_xds_variable_is_read() {
    let server = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "c"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "k"),
    ];
    let table = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW", "rules.xds.server", "localhost:18000"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "h:1", "rules.xds.server", "h:1"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "dns:///h:1", "rules.xds.server", "h:1"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "[::1]:2", "rules.xds.server", "[::1]:2"),
        ("CONFIG_GRPC_XDS_NODE_ID", "", "rules.xds.node_id", "default"),
        ("CONFIG_GRPC_XDS_NODE_ID", "n", "rules.xds.node_id", "n"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "a=b=c,d:e,f=", "rules.xds.node_metadata", "a=b=c,f="),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "A:b, c: d%2", "rules.xds.headers", {
            "A=hidden,c=hidden"
        }),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true", "rules.xds.tls", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "x", "rules.xds.tls_cert", "x"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "x", "rules.xds.tls_key", "x"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "a", "rules.xds.tls_ca", "a"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "s", "rules.xds.tls_server_name", "s"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "1s", "rules.xds.backoff_initial", "1s"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1m", "rules.xds.backoff_max", "1m"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "5000", "rules.xds.max_message_bytes", "5000"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", "rules.xds.max_message_bytes", "67108864"),
    ];
    for (name, value, path, meaning) in table {
        let mut env: Vec<_> = server.into_iter().filter(|(other, _)| *other != name).collect();
        env.push((name, value));
        assert_eq!(value_of(run(NO_FILE, &env, Flags::default()), path), meaning, "{name}={value}");
        let unused = [(name, value), ("CONFIG_TYPE", "FILE")];
        if name != "CONFIG_TYPE" {
            let defaults = shown(&Settings::default());
            let shown = value_of(run(NO_FILE, &unused, Flags::default()), path);
            assert_eq!(shown, defaults[path], "{name} with CONFIG_TYPE=FILE");
        }
    }
    let names: Vec<&str> = table.iter().map(|row| row.0).collect();
    let sets = envoy_ratelimit_env::xds::SETS.iter().map(|(name, ..)| *name);
    for name in sets.chain(envoy_ratelimit_env::xds::TLS.map(|(name, _)| name)) {
        assert!(names.contains(&name), "{name} has no row");
    }
}

#[test]
fn files_of_tls_need_the_switch() {
    let env = [("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "a")];
    assert_eq!(value_of(run(NO_FILE, &env, Flags::default()), "rules.xds.tls_ca"), "");
}

/// With a server, rule files are read only if they are named.
#[test]
fn a_server_replaces_the_default_folder_of_rules() {
    let paths = |file: &str, env: &[(&str, &str)]| {
        value_of(run(file, env, Flags::default()), "rules.paths")
    };
    let xds = "rules: { xds: { server: 'h:1' } }";
    assert_eq!(paths(NO_FILE, &[]), r#"["rules/"]"#);
    assert_eq!(paths(xds, &[]), "[]");
    assert_eq!(paths(xds, &[("RUNTIME_ROOT", "/data")]), r#"["/data/config"]"#);
    assert_eq!(paths("rules: { paths: [a], xds: { server: 'h:1' } }", &[]), r#"["a"]"#);
    let both = [("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("WEIR__RULES__PATHS", "a")];
    assert_eq!(paths(NO_FILE, &both), r#"["a"]"#);
    let lines = errors("rules: { paths: [] }", &[], Flags::default());
    assert!(lines[0].contains("or set rules.xds.server"), "{lines:?}");
    assert_eq!(paths("rules: { paths: [], xds: { server: 'h:1' } }", &[]), "[]");
}

#[test]
fn wrong_values_of_xds_settings_name_a_fix() {
    for (file, part) in [
        ("rules: { xds: { server: h } }", "rules.xds.server: \"h\" is not a host and a port"),
        ("rules: { xds: { server: 'u@h:1' } }", "is not a host and a port"),
        ("rules: { xds: { node_metadata: 'a,b=c' } }", "are not names and values"),
        ("rules: { xds: { headers: a } }", "rules.xds.headers: \"hidden\" are not headers"),
        ("rules: { xds: { sever: h } }", "did you mean `rules.xds.server`?"),
        ("rules: { xds: a }", "rules.xds is a section"),
    ] {
        let lines = errors(file, &[], Flags::default());
        assert_eq!(lines.len(), 1, "{file}: {lines:?}");
        assert!(lines[0].contains(part), "{file}: {lines:?}");
    }
}
