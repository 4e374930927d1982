//! Translates envoyproxy/ratelimit's variables of rules by xDS.
//!
//! They have an effect only with `CONFIG_TYPE=GRPC_XDS_SOTW`. The variables of the rules' folder have
//! none then.

use super::{Translate, as_is, bad, get, source_value};
use crate::settings::scalar;
use crate::settings::source_values::SourceValue;

/// The value of `CONFIG_TYPE` that selects rules by xDS.
pub(super) const KIND: &str = "GRPC_XDS_SOTW";

/// Variables that set one setting each: name, setting, translation.
pub(in crate::settings) const SETS: [(&str, &str, Translate); 7] = [
    ("CONFIG_GRPC_XDS_SERVER_URL", "rules.xds.server", server),
    ("CONFIG_GRPC_XDS_NODE_ID", "rules.xds.node_id", as_is),
    ("CONFIG_GRPC_XDS_NODE_METADATA", "rules.xds.node_metadata", metadata),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "rules.xds.headers", headers),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "rules.xds.backoff_initial", as_is),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "rules.xds.backoff_max", as_is),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "rules.xds.max_message_bytes", max_message),
];

/// Variables of TLS and their settings. They have an effect only if the first one is true.
pub(in crate::settings) const TLS: [(&str, &str); 5] = [
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "rules.xds.tls"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "rules.xds.tls_cert"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "rules.xds.tls_key"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "rules.xds.tls_ca"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "rules.xds.tls_server_name"),
];

/// The server of envoyproxy/ratelimit's default.
const SERVER: &str = "localhost:18000";

/// The settings that `env` sets.
pub(super) fn translate(env: &[(String, String)]) -> Vec<SourceValue> {
    let mut values = vec![source_value(SETS[0].1, "CONFIG_TYPE".to_owned(), Ok(SERVER.to_owned()))];
    for (name, path, translate) in SETS {
        if let Some(text) = get(env, name) {
            let value = translate(text).map_err(|what| bad(name, path, text, what));
            values.push(source_value(path, name.to_owned(), value));
        }
    }
    let is_tls = get(env, TLS[0].0).is_some_and(|text| scalar::switch(text) != Ok(false));
    let used: &[(&str, &str)] = if is_tls { &TLS[..] } else { &[] };
    values.extend(used.iter().filter_map(|(name, path)| {
        let text = get(env, name)?.to_owned();
        Some(source_value(path, (*name).to_owned(), Ok(text)))
    }));
    values
}

/// A target of gRPC in Go, without its scheme.
fn server(text: &str) -> Result<String, String> {
    let schemes = ["dns:///", "passthrough:///"];
    let address = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
    Ok(address.unwrap_or(text).to_owned())
}

/// `name=value,name=value`, without parts that have no `=`, as envoyproxy/ratelimit drops them.
fn metadata(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split(',').filter(|part| part.contains('=')).collect();
    Ok(parts.join(","))
}

/// `name:value,name:value`, as `name=value,name=value` with percent-encoded values.
fn headers(text: &str) -> Result<String, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let header = |part: &str| {
        let (name, value) = part.split_once(':')?;
        Some(format!("{}={}", name.trim(), value.trim().replace('%', "%25")))
    };
    let headers: Option<Vec<String>> = parts.map(header).collect();
    let headers = headers.ok_or("are not headers; write `name:value,name:value`")?;
    Ok(headers.join(","))
}

/// A size in bytes. 0 means the default.
fn max_message(text: &str) -> Result<String, String> {
    Ok(if text == "0" { "67108864" } else { text }.to_owned())
}
