//! Tests of precedence, of envoyproxy/ratelimit's variables, and of every kind of error.

use std::collections::BTreeMap;
use std::io::Write;

use super::*;

mod combinations;
mod envoy_gateway;
mod every_setting;
mod file;
mod image;
mod listeners;
mod otlp;
mod rlqs;
mod secrets;
mod settings_page;
mod warnings;

const NO_FILE: &str = "";

fn pairs(env: &[(&str, &str)]) -> Vec<(String, String)> {
    env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Loads `file` (as `weir.yaml`), `env` and `flags`. Errors lack the folder of the file.
fn run(file: &str, env: &[(&str, &str)], mut flags: Flags) -> Result<Loaded, Vec<String>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    if file != NO_FILE {
        let path = folder.path().join("weir.yaml");
        std::fs::File::create(&path)
            .and_then(|mut open| open.write_all(file.as_bytes()))
            .expect("a file in it");
        flags.config = Some(path);
    }
    let prefix = format!("{}/", folder.path().display());
    load(&flags, &pairs(env)).map_err(|problems| {
        problems.to_string().lines().map(|line| line.replace(&prefix, "")).collect()
    })
}

/// The value of every setting, by path, as `/settings` shows it.
fn shown(settings: &Settings) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut shown = BTreeMap::new();
    let mut sections = vec![(String::new(), settings.to_json())];
    while let Some((path, section)) = sections.pop() {
        for (name, value) in section.as_object().expect("a section") {
            let path = format!("{path}{name}");
            if value.is_object() {
                sections.push((format!("{path}."), value.clone()));
            } else {
                shown.insert(path, text(value));
            }
        }
    }
    shown
}

fn value_of(loaded: Result<Loaded, Vec<String>>, path: &str) -> String {
    let loaded = loaded.unwrap_or_else(|problems| panic!("{path}: {problems:?}"));
    shown(&loaded.settings).remove(path).expect("a setting of that name")
}

fn errors(file: &str, env: &[(&str, &str)], flags: Flags) -> Vec<String> {
    match run(file, env, flags) {
        Ok(_) => panic!("{file} {env:?} was accepted"),
        Err(lines) => lines,
    }
}

/// The rules cannot read the settings, so this default is written twice.
#[test]
fn rules_have_the_default_of_max_limits() {
    let max_limits = XdsSettings::default().max_limits;
    assert_eq!(max_limits, crate::rules::Options::default().xds_limits_max);
}

#[test]
fn each_source_overrides_the_weaker_ones() {
    let file = "grpc: { listen: '[::]:3' }\nrules: { paths: [c, cc] }";
    let envoy_ratelimit = [("GRPC_PORT", "2"), ("RUNTIME_ROOT", "/b")];
    let ours = [("WEIR__GRPC__LISTEN", "[::]:4"), ("WEIR__RULES__PATHS", "d, dd")];
    let all = [envoy_ratelimit, ours].concat();
    let flags = Flags {
        grpc_listen: Some("[::]:5".to_owned()),
        rules: vec!["e".to_owned(), "ee".to_owned()],
        ..Flags::default()
    };
    let none = Flags::default;
    let table = [
        (run(NO_FILE, &[], none()), "[::]:8081", r#"["rules/"]"#),
        (run(NO_FILE, &envoy_ratelimit, none()), "[::]:2", r#"["/b/config"]"#),
        (run(file, &envoy_ratelimit, none()), "[::]:3", r#"["c","cc"]"#),
        (run(file, &all, none()), "[::]:4", r#"["d","dd"]"#),
        (run(file, &all, flags), "[::]:5", r#"["e","ee"]"#),
    ];
    for (loaded, listen, paths) in table {
        assert_eq!(value_of(loaded.clone(), "grpc.listen"), listen);
        assert_eq!(value_of(loaded, "rules.paths"), paths);
    }
}

#[test]
fn every_flag_sets_what_its_name_says() {
    let text = |text: &str| Some(text.to_owned());
    let flags = Flags {
        config: None,
        rules: vec!["r".to_owned()],
        store: text("redis"),
        redis_url: text("redis://h:1"),
        grpc_listen: text("127.0.0.1:1"),
        http_listen: text("127.0.0.1:2"),
        admin_listen: text("127.0.0.1:3"),
    };
    let settings = run(NO_FILE, &[], flags).expect("valid flags").settings;
    let shown = shown(&settings);
    assert_eq!(settings.rules.paths, [std::path::Path::new("r")]);
    assert_eq!(settings.store.kind, StoreKind::Redis);
    assert_eq!(shown["redis.url"], "redis://h:1");
    assert_eq!(shown["grpc.listen"], "127.0.0.1:1");
    assert_eq!(shown["http.listen"], "127.0.0.1:2");
    assert_eq!(shown["admin.listen"], "127.0.0.1:3");
}

#[test]
fn every_variable_of_envoy_ratelimit_is_read() {
    /// Variables, a setting, and its value.
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);
    let table: [Row<'_>; 54] = [
        (&[("PORT", "9")], "http.listen", "[::]:9"),
        (&[("HOST", "127.0.0.1")], "http.listen", "127.0.0.1:8080"),
        (&[("HOST", "::1"), ("PORT", "9")], "http.listen", "[::1]:9"),
        (&[("GRPC_HOST", "[::1]"), ("GRPC_PORT", "9")], "grpc.listen", "[::1]:9"),
        (&[("GRPC_HOST", "localhost")], "grpc.listen", "127.0.0.1:8081"),
        (&[("DEBUG_PORT", "9")], "admin.listen", "127.0.0.1:9"),
        (&[("DEBUG_HOST", "0.0.0.0")], "admin.listen", "0.0.0.0:6070"),
        (&[("DEBUG_HOST", "")], "admin.listen", "127.0.0.1:6070"),
        (&[("GRPC_MAX_CONNECTION_AGE", "1h30m")], "grpc.max_connection_age", "90m"),
        (&[("GRPC_MAX_CONNECTION_AGE", "0s")], "grpc.max_connection_age", "off"),
        (&[("LOG_LEVEL", "WARNING")], "log.level", "warn"),
        (&[("LOG_LEVEL", "fatal")], "log.level", "error"),
        (&[("LOG_FORMAT", "json")], "log.format", "json"),
        (&[("LOG_FORMAT", "text")], "log.format", "pretty"),
        (&[("MERGE_DOMAIN_CONFIG", "T")], "rules.merge_domains", "true"),
        (&[("FORCE_START_WITHOUT_INITIAL_CONFIG", "1")], "rules.start_without_rules", "true"),
        (&[("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")], "readyz.require_rules", "loaded"),
        (&[("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "0")], "readyz.require_rules", "off"),
        (&[("SHADOW_MODE", "TRUE")], "response.shadow_mode", "true"),
        (&[("SHADOW_MODE", "F")], "response.shadow_mode", "false"),
        (&[("QUOTA_MODE", "t")], "response.quota_mode", "true"),
        (&[("RESPONSE_DYNAMIC_METADATA", "True")], "response.dynamic_metadata", "true"),
        (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], "response.envoy_ratelimit_headers", "true"),
        (&[("LIMIT_RESPONSE_HEADERS_ENABLED", "true")], "response.headers", "off"),
        (&[("LIMIT_LIMIT_HEADER", "X-L")], "response.limit_header", "X-L"),
        (&[("LIMIT_REMAINING_HEADER", "X-R")], "response.remaining_header", "X-R"),
        (&[("LIMIT_RESET_HEADER", "X-S")], "response.reset_header", "X-S"),
        (&[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true")], "rules.denied_requests", "free"),
        (&[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "0")], "rules.denied_requests", "count"),
        (&[("RUNTIME_ROOT", "/data")], "rules.paths", r#"["/data/config"]"#),
        (&[("RUNTIME_SUBDIRECTORY", "rl")], "rules.paths", {
            r#"["/srv/runtime_data/current/rl/config"]"#
        }),
        (
            &[
                ("RUNTIME_ROOT", "/data/"),
                ("RUNTIME_SUBDIRECTORY", "/rl"),
                ("RUNTIME_APPDIRECTORY", "a/b"),
            ],
            "rules.paths",
            r#"["/data/rl/a/b"]"#,
        ),
        (&[("REDIS_URL", "h:1"), ("BACKEND_TYPE", "redis")], "store.kind", "redis"),
        (&[("REDIS_AUTH", "p")], "store.kind", "memory"),
        (&[("REDIS_URL", "h:1")], "redis.url", "redis://h:1"),
        (
            &[
                ("REDIS_URL", "m,a:1,b:2"),
                ("REDIS_TYPE", "sentinel"),
                ("REDIS_TLS", "true"),
                ("REDIS_AUTH", "hunter2"),
            ],
            "redis.url",
            "rediss-sentinel://:***@a:1?node=b:2&sentinelServiceName=m",
        ),
        (&[("REDIS_POOL_SIZE", "9")], "redis.min_connections_per_node", "9"),
        (&[("REDIS_TLS_CACERT", "c")], "redis.tls_ca", "c"),
        (&[("REDIS_TLS_CLIENT_CERT", "c")], "redis.tls_cert", "c"),
        (&[("REDIS_TLS_CLIENT_KEY", "c")], "redis.tls_key", "c"),
        (&[("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "1")], "redis.tls_skip_hostname_check", "true"),
        (&[("CONFIG_TYPE", "FILE")], "rules.paths", r#"["rules/"]"#),
        (&[("USE_PROMETHEUS", "true")], "metrics.envoy_ratelimit_names", "true"),
        (&[("USE_PROMETHEUS", "true")], "metrics.listen", "[::]:9090"),
        (&[("USE_PROMETHEUS", "1"), ("PROMETHEUS_ADDR", ":9")], "metrics.listen", "[::]:9"),
        (&[("USE_PROMETHEUS", "f"), ("PROMETHEUS_ADDR", ":9")], "metrics.listen", ""),
        (&[("PROMETHEUS_ADDR", ":9")], "metrics.listen", ""),
        (&[("PROMETHEUS_PATH", "/m")], "metrics.path", "/m"),
        (&[("TRACING_ENABLED", "true")], "tracing.enabled", "true"),
        (&[("TRACING_EXPORTER_PROTOCOL", "grpc")], "tracing.protocol", "grpc"),
        (&[("TRACING_SAMPLING_RATE", "0.5")], "tracing.sampling_rate", "0.5"),
        (&[("TRACING_SERVICE_NAME", "s")], "tracing.service_name", "s"),
        (&[("TRACING_SERVICE_NAMESPACE", "n")], "tracing.service_namespace", "n"),
        (&[("TRACING_SERVICE_INSTANCE_ID", "i")], "tracing.service_instance_id", "i"),
    ];
    for (env, path, meaning) in table {
        let loaded = run(NO_FILE, env, Flags::default());
        assert_eq!(value_of(loaded, path), meaning, "{env:?}");
    }
    let all: Vec<&str> = table.iter().flat_map(|(env, ..)| *env).map(|(name, _)| *name).collect();
    for (name, ..) in
        envoy_ratelimit_env::SETS.iter().filter(|(name, ..)| !name.ends_with("_GRACE"))
    {
        assert!(all.contains(name), "{name} has no row");
    }
}

#[test]
fn bad_foreign_variables_count_only_if_not_overridden() {
    let env = [("GRPC_PORT", "tcp://10.0.0.7:8081"), ("CONFIG_TYPE", "ETCD")];
    let lines = errors(NO_FILE, &env, Flags::default());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("GRPC_PORT: grpc.listen: \"tcp://10.0.0.7:8081\" is not a port"));
    assert!(lines[1].starts_with("CONFIG_TYPE=ETCD: this is not a source of rules"));
    let file = "grpc: { listen: ':8081' }\nrules: { paths: [r] }";
    assert!(run(file, &env, Flags::default()).is_ok());
}

#[test]
fn every_error_says_where_what_and_what_to_write() {
    let table = [
        (
            "grpc: {listn: ':1'}",
            "weir.yaml:1:8: there is no setting `grpc.listn`; did you mean `grpc.listen`?",
        ),
        ("GRPC: {listen: ':1'}", "there is no setting `GRPC.listen`; did you mean `grpc.listen`?"),
        ("max_counters: 5", "no setting `max_counters`; did you mean `store.max_counters`?"),
        ("listen: ':1'", "no setting `listen`; docs/reference/settings.md lists them all"),
        ("grpc: {tls: {cert: a}}", "no setting `grpc.tls.cert`"),
        ("nonsense: {}", "no setting `nonsense`"),
        ("grpc: ':1'", "weir.yaml:1:7: grpc is a section; write its settings below"),
        ("grpc: {listen: {port: 1}}", "weir.yaml:1:16: grpc.listen is one value"),
        ("grpc: {listen: [a]}", "grpc.listen is one value, not a list"),
        ("grpc: {listen: }", "grpc.listen has no value; write one"),
        ("grpc: {listen: 8081}", "weir.yaml:1:16: grpc.listen: \"8081\" is not an address"),
        ("rules: {paths: []}", "rules.paths: \"[]\" has no path"),
        ("rules: {paths: [[a]]}", "rules.paths is a list of texts"),
        ("rules: {merge_domains: yes}", "\"yes\" is neither true nor false"),
        ("response: {headers: all}", "write `off` or `x-ratelimit` or `ietf` or `both`"),
        ("store: {timeout: 10}", "\"10\" is not a duration; write one such as `10ms`"),
        ("store: {timeout: 0s}", "is zero; write a duration"),
        ("store: {max_counters: -1}", "write a whole number from 1"),
        ("store: {max_counters: 1.5}", "write a whole number from 1"),
        ("fallback: {on_error: sometimes}", "write `allow` or `deny` or `local`"),
        ("fallback: {instances: 0}", "write a whole number from 1"),
        ("redis: {url: 'http://h'}", "redis.url: \"http://h\" is not a URL of Redis"),
        ("clock: {offset: soon}", "\"soon\" is not a duration"),
        ("log: {level: loud}", "is not a log level"),
        ("metrics: {path: metrics}", "is not a path; write one such as `/metrics`"),
        ("metrics: {listen: here}", "metrics.listen: \"here\" is not an address"),
        ("http: {listen: '[::]:8081'}", "grpc.listen and http.listen are both [::]:8081"),
        ("grpc: [", "; fix the YAML here or just above"),
        ("- a", "weir.yaml:1:1: not a settings file; write sections"),
        ("hunter2", "weir.yaml:1:1: not a settings file; write sections, such as `grpc:`"),
        ("grpc: {listen: ':1', listen: ':2'}", "weir.yaml:1:22: `listen` is written twice here"),
        ("{}\n---\n{}", "weir.yaml:3:1: a second document; keep one"),
    ];
    for (file, part) in table {
        let lines = errors(file, &[], Flags::default());
        assert_eq!(lines.len(), 1, "{file}: {lines:?}");
        assert!(lines[0].contains(part), "{file}: {lines:?}");
    }
    let env = [("WEIR__GRPC__LISTN", ":1"), ("WEIR__HTTP__LISTEN", "")];
    let lines = errors(NO_FILE, &env, Flags::default());
    assert_eq!(lines.len(), 2, "{lines:?}");
    let hint =
        "WEIR__GRPC__LISTN: there is no setting `grpc.listn`; did you mean `WEIR__GRPC__LISTEN`?";
    assert_eq!(lines[0], hint);
    assert!(lines[1].starts_with("WEIR__HTTP__LISTEN: http.listen: \"\" is not an address"));
    let flags = Flags { store: Some("disk".to_owned()), ..Flags::default() };
    let lines = errors(NO_FILE, &[], flags);
    assert_eq!(lines, ["--store: store.kind: \"disk\" is not a choice; write `memory` or `redis`"]);
    let missing = Flags { config: Some("missing.yaml".into()), ..Flags::default() };
    assert!(errors(NO_FILE, &[], missing)[0].contains("name an existing file with --config"));
}

#[test]
fn all_problems_of_all_sources_come_at_once() {
    let file = "grpc: {listen: x, workers: x}\nstore: {knd: memory}\nlog: 5";
    let env = [("PORT", "x"), ("WEIR__DRAIN__DELAY", "x"), ("WEIR__A", "x")];
    let flags = Flags { admin_listen: Some("x".to_owned()), ..Flags::default() };
    let mut starts: Vec<String> = errors(file, &env, flags)
        .iter()
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    starts.sort();
    let expected = [
        "--admin-listen admin.listen",
        "PORT http.listen",
        "WEIR__A there is no setting `a`; docs/reference/settings.md lists them all",
        "WEIR__DRAIN__DELAY drain.delay",
        "weir.yaml:1:16 grpc.listen",
        "weir.yaml:1:28 grpc.workers",
        "weir.yaml:2:9 there is no setting `store.knd`; did you mean `store.kind`?",
        "weir.yaml:3:6 log is a section; write its settings below its name",
    ];
    assert_eq!(starts, expected);
}

#[test]
fn an_empty_file_and_empty_sections_mean_the_defaults() {
    for file in ["# nothing\n", "{}", "grpc:\nhttp: {}\n"] {
        let settings = run(file, &[], Flags::default()).expect("valid").settings;
        assert_eq!(settings, Settings::default(), "{file:?}");
    }
}
