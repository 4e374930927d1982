//! Translates the environment variables of envoyproxy/ratelimit into settings.
//!
//! envoyproxy/ratelimit is configured by environment variables alone. Their meaning is kept, so
//! that changing the image is enough to migrate. They override the defaults and no other source.
//! Empty values count as unset.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::problem::Problem;
use super::redis_address::{RedisEnv, RedisKind};
use super::source_values::{SourceValue, list};
use super::{redis_address, scalar, secret};

pub(super) mod xds;

/// A function that translates a value of envoyproxy/ratelimit into the text of a setting.
type Translate = fn(&str) -> Result<String, String>;

/// Variables that set one setting each: name, setting, translation.
pub(super) const SETS: [(&str, &str, Translate); 28] = [
    ("GRPC_MAX_CONNECTION_AGE", "grpc.max_connection_age", as_is),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", "grpc.max_connection_age_grace", as_is),
    ("LOG_LEVEL", "log.level", level),
    ("LOG_FORMAT", "log.format", format),
    ("MERGE_DOMAIN_CONFIG", "rules.merge_domains", as_is),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "rules.start_without_rules", as_is),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "readyz.require_rules", require_rules),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "rules.denied_requests", denied_requests),
    ("SHADOW_MODE", "response.shadow_mode", as_is),
    ("QUOTA_MODE", "response.quota_mode", as_is),
    ("RESPONSE_DYNAMIC_METADATA", "response.dynamic_metadata", as_is),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", "response.envoy_ratelimit_headers", as_is),
    ("LIMIT_LIMIT_HEADER", "response.limit_header", as_is),
    ("LIMIT_REMAINING_HEADER", "response.remaining_header", as_is),
    ("LIMIT_RESET_HEADER", "response.reset_header", as_is),
    ("USE_PROMETHEUS", "metrics.envoy_ratelimit_names", as_is),
    ("PROMETHEUS_PATH", "metrics.path", as_is),
    ("TRACING_ENABLED", "tracing.enabled", as_is),
    ("TRACING_EXPORTER_PROTOCOL", "tracing.protocol", as_is),
    ("TRACING_SAMPLING_RATE", "tracing.sampling_rate", as_is),
    ("TRACING_SERVICE_NAME", "tracing.service_name", as_is),
    ("TRACING_SERVICE_NAMESPACE", "tracing.service_namespace", as_is),
    ("TRACING_SERVICE_INSTANCE_ID", "tracing.service_instance_id", as_is),
    ("REDIS_POOL_SIZE", "redis.min_connections_per_node", as_is),
    ("REDIS_TLS_CACERT", "redis.tls_ca", as_is),
    ("REDIS_TLS_CLIENT_CERT", "redis.tls_cert", as_is),
    ("REDIS_TLS_CLIENT_KEY", "redis.tls_key", as_is),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "redis.tls_skip_hostname_check", as_is),
];

/// Variables that form the address of Redis. `REDIS_URL` also selects the redis store.
pub(super) const REDIS: [&str; 5] =
    ["REDIS_URL", "REDIS_TYPE", "REDIS_AUTH", "REDIS_SENTINEL_AUTH", "REDIS_TLS"];

/// The variable that selects the store. Only Redis is supported.
pub(super) const BACKEND: &str = "BACKEND_TYPE";

/// Variables of TLS and their settings. They have an effect only if the first one is true.
pub(super) const TLS: [(&str, &str); 5] = [
    ("GRPC_SERVER_USE_TLS", ""),
    ("GRPC_SERVER_TLS_CERT", "grpc.tls_cert"),
    ("GRPC_SERVER_TLS_KEY", "grpc.tls_key"),
    ("GRPC_CLIENT_TLS_CACERT", "grpc.tls_client_ca"),
    ("GRPC_CLIENT_TLS_SAN", "grpc.tls_client_san"),
];

/// Listeners; the first host is read under the name `ratelimit` only, see [`without_host`].
/// Columns: variable of the host, variable of the port, setting, default host, default port.
/// The defaults are weir's, so a port alone keeps the host of weir's default.
pub(super) const LISTENERS: [(&str, &str, &str, &str, &str); 3] = [
    ("HOST", "PORT", "http.listen", "::", "8080"),
    ("GRPC_HOST", "GRPC_PORT", "grpc.listen", "::", "8081"),
    ("DEBUG_HOST", "DEBUG_PORT", "admin.listen", "127.0.0.1", "6070"),
];

/// The variable that selects the source of rules: files, or a server ([`xds`]).
pub(super) const RULE_SOURCE: &str = "CONFIG_TYPE";

/// The three variables that form the folder of the rules, and their defaults.
pub(super) const FOLDER: [(&str, &str); 3] = [
    ("RUNTIME_ROOT", "/srv/runtime_data/current"),
    ("RUNTIME_SUBDIRECTORY", ""),
    ("RUNTIME_APPDIRECTORY", "config"),
];

/// The variable of the metrics listener's address and its default. It requires `USE_PROMETHEUS`.
pub(super) const PROMETHEUS_LISTENER: [&str; 2] = ["PROMETHEUS_ADDR", ":9090"];

/// Variables without effect, by reason. `*` stands for the rest of a name.
#[rustfmt::skip]
pub(super) const WITHOUT_EFFECT: [(&str, &[&str]); 8] = [
    ("unix sockets are not supported yet", &["GRPC_UDS"]),
    ("envoyproxy/ratelimit does not read it either; set GRPC_CLIENT_TLS_CACERT",
        &["GRPC_SERVER_TLS_CA_CERT"]),
    ("all limits are counted in one Redis", &["REDIS_PERSECOND*"]),
    ("weir uses its own Redis client; see docs/operate/redis.md",
        &["REDIS_SOCKET_TYPE", "REDIS_PIPELINE_WINDOW", "REDIS_PIPELINE_LIMIT",
          "REDIS_CLUSTER_PIPELINE_PARALLELISM", "REDIS_TIMEOUT", "REDIS_POOL_ON_EMPTY_BEHAVIOR",
          "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "REDIS_STARTUP_*", "CACHE_KEY_PREFIX",
          "EXPIRATION_JITTER_MAX_SECONDS", "LOCAL_CACHE_SIZE_IN_BYTES"]),
    ("memcached is not supported", &["MEMCACHE_*"]),
    ("weir connects again by its own schedule; see docs/guides/xds.md",
        &["CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
          "XDS_CLIENT_BACKOFF_JITTER"]),
    ("metrics are on the admin listener, for Prometheus",
        &["USE_STATSD", "STATSD_*", "USE_DOG_STATSD", "USE_DOG_STATSD_MOGRIFIERS",
          "DOG_STATSD_MOGRIFIER_*", "PROMETHEUS_MAPPER_YAML",
          "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "EXTRA_TAGS", "STATS_FLUSH_INTERVAL",
          "DISABLE_STATS", "NEAR_LIMIT_RATIO", "SANITIZE_DESCRIPTOR_METRIC_DOTS"]),
    ("weir differs here; see docs/start/migration.md",
        &["USE_CALENDAR_MONTH_RATE_LIMIT"]),
];

/// Variables of features that are always on in weir: it skips names that start with a dot, and it
/// reloads after a swapped root and after a changed file. The tests of the documentation list them.
#[cfg(test)]
pub(super) const ALWAYS_ON: [&str; 2] = ["RUNTIME_IGNOREDOTFILES", "RUNTIME_WATCH_ROOT"];

/// Adds the default of `RUNTIME_ROOT` to `env`, if no variable sets the folder of the rules. The
/// image of envoyproxy/ratelimit has this default; weir's own is `rules/`.
pub fn with_default_runtime_root(mut env: Vec<(String, String)>) -> Vec<(String, String)> {
    let (root, folder) = FOLDER[0];
    let ours = env.iter().any(|(name, _)| name == "WEIR__RULES__PATHS");
    if !ours && FOLDER.iter().all(|(name, _)| get(&env, name).is_none()) {
        env.push((root.to_owned(), folder.to_owned()));
    }
    env
}

/// Removes `HOST` from `env`, for a process under weir's own name: shells and CI systems export the
/// name of the machine under it. An address may be meant for weir, so it causes a warning.
pub fn without_host(mut env: Vec<(String, String)>) -> (Vec<(String, String)>, Option<String>) {
    let (host, _, setting, ..) = LISTENERS[0];
    let text = get(&env, host);
    let is_ip = text.is_some_and(|text| unbracketed(text).parse::<IpAddr>().is_ok());
    let warning = text.filter(|text| is_ip || *text == LOCALHOST).map(|text| {
        format!("{host}={text} has no effect under the name weir; set {setting} (host and port)")
    });
    env.retain(|(name, _)| name != host);
    (env, warning)
}

/// The settings that `env` sets.
pub(super) fn translate(env: &[(String, String)]) -> Vec<SourceValue> {
    let mut values = Vec::new();
    for (name, path, translate) in SETS {
        if let Some(text) = get(env, name) {
            let value = translate(text).map_err(|what| bad(name, path, text, what));
            values.push(source_value(path, name.to_owned(), value));
        }
    }
    values.extend(LISTENERS.iter().filter_map(|names| listener(env, *names)));
    values.extend(rule_source(env));
    values.extend(unsupported_backend(env));
    values.extend(redis(env));
    values.extend(metrics_listener(env));
    values.extend(tls(env));
    values
}

/// A warning about variables without effect, if there are any.
pub(super) fn warning(env: &[(String, String)]) -> Option<String> {
    let mut groups = Vec::new();
    for (reason, patterns) in WITHOUT_EFFECT {
        let mut names: Vec<&str> = env
            .iter()
            .filter(|(name, value)| {
                patterns.iter().any(|pattern| fits(name, pattern)) && !is_off(value)
            })
            .map(|(name, _)| name.as_str())
            .collect();
        if !names.is_empty() {
            names.sort_unstable();
            groups.push(format!("{} ({reason})", names.join(", ")));
        }
    }
    (!groups.is_empty()).then(|| format!("these variables have no effect: {}", groups.join("; ")))
}

/// Whether `value` is empty or false. Other values would switch on something that weir lacks.
fn is_off(value: &str) -> bool {
    value.is_empty() || scalar::switch(value) == Ok(false)
}

fn fits(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

fn get<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = env.iter().find(|(candidate, _)| candidate == name);
    found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

fn source_value(path: &str, origin: String, value: Result<String, Problem>) -> SourceValue {
    SourceValue { path: path.to_owned(), origin, value }
}

fn bad(name: &str, path: &str, value: &str, what: String) -> Problem {
    let value = secret::mask(value);
    Problem::BadValue { origin: name.to_owned(), key: path.to_owned(), value, what }
}

fn listener(
    env: &[(String, String)],
    (host_name, port_name, path, host_default, port_default): (&str, &str, &str, &str, &str),
) -> Option<SourceValue> {
    let (host, port) = (get(env, host_name), get(env, port_name));
    let origin = match (host, port) {
        (Some(_), Some(_)) => format!("{host_name}, {port_name}"),
        (Some(_), None) => host_name.to_owned(),
        (None, Some(_)) => port_name.to_owned(),
        (None, None) => return None,
    };
    let host = host.unwrap_or(host_default);
    let port = port.unwrap_or(port_default);
    let bare = unbracketed(host);
    let bare = if bare == LOCALHOST { "127.0.0.1" } else { bare };
    let address = match (bare.parse::<IpAddr>(), port.parse::<u16>()) {
        (Ok(ip), Ok(port)) => Ok(SocketAddr::new(ip, port).to_string()),
        (Err(_), _) => {
            let what = format!("is not an IP address; write one, or set {path} in weir.yaml");
            Err(bad(host_name, path, host, what))
        }
        (_, Err(_)) => {
            let what = format!("is not a port; write 0 to 65535, or set {path} in weir.yaml");
            Err(bad(port_name, path, port, what))
        }
    };
    Some(source_value(path, origin, address))
}

/// The only name that the variables of hosts may have.
const LOCALHOST: &str = "localhost";

/// An IPv6 address without its brackets.
fn unbracketed(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn folder(env: &[(String, String)]) -> Option<SourceValue> {
    let named: Vec<&str> =
        FOLDER.iter().map(|(name, _)| *name).filter(|name| get(env, name).is_some()).collect();
    if named.is_empty() {
        return None;
    }
    let parts = FOLDER.iter().map(|(name, default)| get(env, name).unwrap_or(default));
    let mut path = PathBuf::new();
    // `push` would replace the path by an absolute part. envoyproxy/ratelimit joins them.
    for (index, part) in parts.enumerate() {
        path.push(if index == 0 { part } else { part.trim_start_matches('/') });
    }
    // Pushing an empty part adds a slash, which would appear in messages.
    let path = path.components().collect::<PathBuf>().display().to_string();
    Some(source_value("rules.paths", named.join(", "), Ok(list(&[path]))))
}

/// The settings `store.kind` and `redis.url`, from `REDIS_URL` and the other variables of Redis.
fn redis(env: &[(String, String)]) -> Vec<SourceValue> {
    let [url, kind, auth, sentinel_auth, tls] = REDIS.map(|name| get(env, name));
    let Some(url) = url.filter(|_| other_backend(env).is_none()) else { return Vec::new() };
    let kind_name = kind.unwrap_or("SINGLE");
    let kinds = [
        ("SINGLE", RedisKind::Single),
        ("CLUSTER", RedisKind::Cluster),
        ("SENTINEL", RedisKind::Sentinel),
    ];
    let read = || {
        let found = kinds.iter().find(|(name, _)| name.eq_ignore_ascii_case(kind_name));
        let Some((_, kind)) = found else {
            let what = "is not a kind; write SINGLE, CLUSTER or SENTINEL".to_owned();
            return Err(bad("REDIS_TYPE", "redis.url", kind_name, what));
        };
        let tls = scalar::switch(tls.unwrap_or("false"))
            .map_err(|what| bad("REDIS_TLS", "redis.url", tls.unwrap_or_default(), what))?;
        redis_address::list(url, *kind, &RedisEnv { auth, sentinel_auth, tls })
            .map_err(|what| bad("REDIS_URL", "redis.url", url, what))
    };
    vec![
        source_value("store.kind", "REDIS_URL".to_owned(), Ok("redis".to_owned())),
        source_value("redis.url", "REDIS_URL".to_owned(), read()),
    ]
}

/// The address of the metrics listener, if `USE_PROMETHEUS` is true.
fn metrics_listener(env: &[(String, String)]) -> Option<SourceValue> {
    get(env, "USE_PROMETHEUS").filter(|text| scalar::switch(text) == Ok(true))?;
    let [name, default] = PROMETHEUS_LISTENER;
    let text = get(env, name).unwrap_or(default);
    let address = scalar::address(text).map_err(|what| bad(name, "metrics.listen", text, what));
    let address = address.map(|address| address.to_string());
    Some(source_value("metrics.listen", name.to_owned(), address))
}

/// The settings of the rules' source: the folder, or the server. Another source is an error, because
/// without rules every request would pass.
fn rule_source(env: &[(String, String)]) -> Vec<SourceValue> {
    match get(env, RULE_SOURCE) {
        None | Some("FILE") => folder(env).into_iter().collect(),
        Some(xds::KIND) => xds::translate(env),
        Some(other) => {
            let what = "this is not a source of rules; write FILE or GRPC_XDS_SOTW, or set \
                        rules.paths";
            let problem = Problem::Unsupported { name: RULE_SOURCE, value: other.to_owned(), what };
            vec![source_value("rules.paths", RULE_SOURCE.to_owned(), Err(problem))]
        }
    }
}

/// The backend of `BACKEND_TYPE`, if it is not Redis.
fn other_backend(env: &[(String, String)]) -> Option<&str> {
    get(env, BACKEND).filter(|kind| !kind.eq_ignore_ascii_case("redis"))
}

/// An error for a backend other than Redis, and for Redis without an address: envoyproxy/ratelimit
/// would wait for a Unix socket, without opening a port. Counting in memory instead would multiply
/// each limit by the number of instances.
fn unsupported_backend(env: &[(String, String)]) -> Option<SourceValue> {
    let value = get(env, BACKEND)?.to_owned();
    let [url, ..] = REDIS;
    let what = if other_backend(env).is_some() {
        "only redis is supported; write BACKEND_TYPE=redis and set REDIS_URL, or set store.kind \
         (WEIR__STORE__KIND=memory lets each instance count for itself)"
    } else if get(env, url).is_none() {
        "the address of Redis is missing; set REDIS_URL or redis.url \
         (/var/run/nutcracker/ratelimit.sock is the default of envoyproxy/ratelimit), or set \
         store.kind (WEIR__STORE__KIND=memory lets each instance count for itself)"
    } else {
        return None;
    };
    let problem = Problem::Unsupported { name: BACKEND, value, what };
    Some(source_value("store.kind", BACKEND.to_owned(), Err(problem)))
}

/// The settings of TLS, if it is switched on. A missing file is an error, because plain text would
/// be worse than no service.
fn tls(env: &[(String, String)]) -> Vec<SourceValue> {
    let [(switch, _), files @ ..] = TLS;
    let asked = get(env, switch).filter(|text| scalar::switch(text) != Ok(false));
    let Some(asked) = asked else { return Vec::new() };
    let mut values: Vec<SourceValue> = files
        .into_iter()
        .filter_map(|(name, path)| {
            Some(source_value(path, name.to_owned(), Ok(get(env, name)?.to_owned())))
        })
        .collect();
    for path in ["grpc.tls_cert", "grpc.tls_key"] {
        if !values.iter().any(|value| value.path == path) {
            let what = "set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY as well, or `false`";
            let (name, value) = (switch, asked.to_owned());
            let problem = Problem::Unsupported { name, value, what };
            values.push(source_value(path, switch.to_owned(), Err(problem)));
        }
    }
    values
}

fn as_is(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn level(text: &str) -> Result<String, String> {
    let level = match text.to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => "error",
        "warn" | "warning" => "warn",
        "info" => "info",
        "debug" => "debug",
        "trace" => "trace",
        _ => return scalar::log_level(text),
    };
    Ok(level.to_owned())
}

fn format(text: &str) -> Result<String, String> {
    scalar::choice(text, &[("text", "pretty"), ("json", "json")]).map(str::to_owned)
}

fn require_rules(text: &str) -> Result<String, String> {
    let loaded = scalar::switch(text)?;
    Ok(if loaded { "loaded" } else { "off" }.to_owned())
}

fn denied_requests(text: &str) -> Result<String, String> {
    let free = scalar::switch(text)?;
    Ok(if free { "free" } else { "count" }.to_owned())
}
