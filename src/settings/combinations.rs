//! The problems of settings that are each valid, but not together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Settings;
use super::problem::Problem;
use super::reader::WrittenText;
use super::scalar::is_server_name;
use super::sections::{GrpcSettings, PlanSourceKind, StoreKind, XdsSettings};

/// All problems of `settings`, which were parsed from `written`.
pub(super) fn problems(
    settings: &Settings,
    written: &BTreeMap<String, WrittenText>,
) -> Vec<Problem> {
    let mut problems = same_addresses(settings);
    problems.extend(no_rules(settings, written));
    let tls = [grpc_tls(&settings.grpc), redis_tls(settings), xds_tls(&settings.xds)];
    let texts = tls.into_iter().flatten().chain(plan_source(settings, written));
    problems.extend(texts.map(Problem::Combination));
    problems
}

/// One problem per pair of listeners with the same address.
fn same_addresses(settings: &Settings) -> Vec<Problem> {
    let mut listeners = vec![
        ("grpc.listen", settings.grpc.listen),
        ("http.listen", settings.http.listen),
        ("admin.listen", settings.admin.listen),
    ];
    listeners.extend(settings.metrics.listen.map(|address| ("metrics.listen", address)));
    let mut problems = Vec::new();
    for (index, (second, address)) in listeners.iter().enumerate() {
        for (first, earlier) in &listeners[..index] {
            if earlier == address && address.port() != 0 {
                let value = address.to_string();
                problems.push(Problem::SameAddress { first, second, value });
            }
        }
    }
    problems
}

/// A problem if neither files nor a server has rules.
fn no_rules(settings: &Settings, written: &BTreeMap<String, WrittenText>) -> Option<Problem> {
    let server = written.get("rules.xds.server");
    if !settings.rules.paths.is_empty() || server.is_some_and(|server| !server.text.is_empty()) {
        return None;
    }
    let WrittenText { text, origin } = written.get("rules.paths")?.clone();
    let what = "has no path; write files or folders, such as `[rules/]`, or set rules.xds.server";
    let (key, what) = ("rules.paths".to_owned(), what.to_owned());
    Some(Problem::BadValue { origin, key, value: text, what })
}

/// A forgotten setting must neither result in plain text nor admit every client.
fn grpc_tls(grpc: &GrpcSettings) -> Vec<String> {
    let mut problems = cert_and_key("grpc", &grpc.tls_cert, &grpc.tls_key);
    if grpc.tls_client_ca.is_some() && grpc.tls_cert.is_none() && grpc.tls_key.is_none() {
        let text = "grpc.tls_client_ca needs grpc.tls_cert and grpc.tls_key; set them";
        problems.push(text.to_owned());
    }
    if !grpc.tls_client_san.is_empty() && grpc.tls_client_ca.is_none() {
        let text = "grpc.tls_client_san needs grpc.tls_client_ca; set both or none";
        problems.push(text.to_owned());
    }
    problems
}

fn redis_tls(settings: &Settings) -> Vec<String> {
    let redis = &settings.redis;
    if settings.store.kind != StoreKind::Redis || !redis.url.tls {
        return Vec::new();
    }
    cert_and_key("redis", &redis.tls_cert, &redis.tls_key)
}

fn xds_tls(xds: &XdsSettings) -> Vec<String> {
    let Some((host, _)) = xds.host_and_port() else { return Vec::new() };
    let XdsSettings { tls, tls_ca, tls_cert, tls_key, tls_server_name, .. } = xds;
    let mut problems = cert_and_key("rules.xds", tls_cert, tls_key);
    let has_file = [tls_ca, tls_cert, tls_key].into_iter().any(Option::is_some);
    if !tls && (has_file || tls_server_name.is_some()) {
        let text = "rules.xds.tls_ca, tls_cert, tls_key and tls_server_name have an effect only \
                    with rules.xds.tls; set it to `true`, or delete them";
        problems.push(text.to_owned());
    }
    let name = tls_server_name.as_ref().unwrap_or(&host);
    if *tls && !is_server_name(name) {
        problems.push(format!(
            "rules.xds.tls_server_name: {name:?} is not a name of a server; write a DNS name or an \
             IP address"
        ));
    }
    problems
}

/// A problem if the source of plans lacks what it needs.
fn plan_source(settings: &Settings, written: &BTreeMap<String, WrittenText>) -> Option<String> {
    let plans = &settings.plans;
    // A bad address is reported as such.
    let has_url = written.get("plans.url").is_some_and(|url| !url.text.is_empty());
    let text = match plans.source {
        PlanSourceKind::File if plans.file.is_none() => {
            "plans.source `file` needs plans.file; set it"
        }
        PlanSourceKind::Redis if settings.store.kind != StoreKind::Redis => {
            "plans.source `redis` needs store.kind `redis`; set it, or use another source"
        }
        PlanSourceKind::Http if !has_url => "plans.source `http` needs plans.url; set it",
        PlanSourceKind::None
        | PlanSourceKind::File
        | PlanSourceKind::Redis
        | PlanSourceKind::Http => return None,
    };
    Some(text.to_owned())
}

/// A problem if only one of the two files is set.
fn cert_and_key(section: &str, cert: &Option<PathBuf>, key: &Option<PathBuf>) -> Vec<String> {
    if cert.is_some() == key.is_some() {
        return Vec::new();
    }
    vec![format!("{section}.tls_cert and {section}.tls_key go together; set both or none")]
}
