//! Loads any bytes as a settings file and an environment.

use weir::settings::{Loaded, Problems, Settings, load_bytes};

/// A secret that inputs do not contain by chance.
const SECRET: &str = "hunter2-4f1b";

/// Settings that hold [`SECRET`], for the end of a settings file. The text closes no quote and no
/// bracket of the lines before it, so it cannot become part of another value.
const SECRETS: &str = "
admin:
  token: hunter2-4f1b
redis:
  key_secret: hunter2-4f1b
  url: redis://user:hunter2-4f1b@host:1
tracing:
  headers: name=hunter2-4f1b
  endpoint: http://host:1/?api_key=hunter2-4f1b
";

/// Loads settings from `bytes`: the settings file, and after each NUL byte a variable `NAME=value`, as
/// in `/proc/self/environ`. Returns true if they are valid; then `/settings` must show a valid file with
/// the same settings. Returns false if they are rejected; then there must be a reason. In both cases, no
/// output may show a secret.
pub fn yaml(bytes: &[u8]) -> bool {
    let mut parts = bytes.split(|byte| *byte == 0);
    let file = parts.next().unwrap_or_default();
    let env: Vec<(String, String)> = parts.filter_map(variable).collect();
    let loaded = load_bytes(file, &env);
    let mut texts = bytes.windows(SECRET.len());
    // The input itself may have the secret in a place that is shown.
    if !texts.any(|text| text.eq_ignore_ascii_case(SECRET.as_bytes())) {
        hides_secrets(&loaded);
        hides_secrets(&load_bytes(&[file, SECRETS.as_bytes()].concat(), &env));
    }
    match loaded {
        Ok(loaded) => {
            let plain = |text: &String| !text.is_empty() && !text.contains(char::is_control);
            assert!(loaded.warnings.iter().all(plain), "{:?}", loaded.warnings);
            reads_back(&loaded.settings);
            true
        }
        Err(problems) => {
            assert!(!problems.0.is_empty(), "refused without a reason");
            assert_eq!(problems.to_string().lines().count(), problems.0.len(), "{problems}");
            false
        }
    }
}

/// A variable, with [`SECRET`] in it if its name is that of a secret.
fn variable(part: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(part);
    let (name, value) = text.split_once('=')?;
    Some((name.to_owned(), with_secret(name, value)))
}

/// What `/settings` shows is a settings file that shows the same. The settings are not compared,
/// because their secrets are masked.
fn reads_back(settings: &Settings) {
    let shown = settings.to_json();
    match load_bytes(shown.to_string().as_bytes(), &[]) {
        Ok(again) => assert_eq!(again.settings.to_json(), shown),
        Err(problems) => panic!("{problems}\nin {shown}"),
    }
}

/// Errors, warnings, `/settings` and debug output do not show the secret.
fn hides_secrets(loaded: &Result<Loaded, Problems>) {
    let shown = match loaded {
        Ok(loaded) => format!("{loaded:?} {}", loaded.settings.to_json()),
        Err(problems) => format!("{problems:?} {problems}"),
    };
    assert!(!shown.contains(SECRET), "{shown}");
}

/// `value` with [`SECRET`] where the variable `name` may hold one.
fn with_secret(name: &str, value: &str) -> String {
    match name {
        "WEIR__ADMIN__TOKEN" | "WEIR__REDIS__KEY_SECRET" | "REDIS_AUTH" | "REDIS_SENTINEL_AUTH" => {
            format!("{value}{SECRET}")
        }
        "WEIR__TRACING__HEADERS" | "WEIR__METRICS__OTLP_HEADERS" | "OTEL_EXPORTER_OTLP_HEADERS" => {
            format!("{value},name={SECRET}")
        }
        "WEIR__REDIS__URL" | "REDIS_URL" => match value.rsplit_once('@') {
            Some((user, host)) => format!("{user}:{SECRET}@{host}"),
            None => value.to_owned(),
        },
        // A second question mark would belong to the parameter before it.
        "WEIR__TRACING__ENDPOINT" | "OTEL_EXPORTER_OTLP_ENDPOINT" if !value.contains('?') => {
            format!("{value}?api_key={SECRET}")
        }
        _ => value.to_owned(),
    }
}
