//! This module reads settings from their sources and layers them; the strongest source wins.

use std::collections::BTreeMap;
use std::path::PathBuf;

use config::{Environment, File, FileFormat, Source, Value, ValueKind};

use super::leaf::{Leaf, Origins};
use super::problem::{Problem, Problems};
use super::raw::Raw;
use super::{Settings, envoy_ratelimit_env, otel, parse};

/// What the command line overrides.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Overrides {
    /// Settings file (docs/settings.md shows its shape)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Rule files or folders
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub rules: Vec<String>,
    /// Where counters live: memory or redis
    #[arg(long, value_name = "KIND")]
    pub store: Option<String>,
    /// URL of Redis
    #[arg(long, value_name = "URL")]
    pub redis_url: Option<String>,
    /// Address of the gRPC listener
    #[arg(long, value_name = "ADDRESS")]
    pub grpc_listen: Option<String>,
    /// Address of the HTTP listener
    #[arg(long, value_name = "ADDRESS")]
    pub http_listen: Option<String>,
    /// Address of the admin listener
    #[arg(long, value_name = "ADDRESS")]
    pub admin_listen: Option<String>,
}

/// Settings, and what the operator should hear about them at start.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// In force.
    pub settings: Settings,
    /// One line each.
    pub warnings: Vec<String>,
}

/// The process's environment. Text that is not Unicode is kept as far as it can be.
pub fn process_env() -> Vec<(String, String)> {
    let text = |raw: std::ffi::OsString| raw.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// Every setting with its default, as written in `weir.yaml`: `("grpc.listen", "[::]:8081")`.
pub fn fields() -> Vec<(String, String)> {
    let sections = serde_json::to_value(Raw::default()).expect("texts have a JSON form");
    let mut fields = Vec::new();
    for (section, settings) in sections.as_object().into_iter().flatten() {
        for (name, default) in settings.as_object().into_iter().flatten() {
            let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            fields.push((format!("{section}.{name}"), text));
        }
    }
    fields
}

/// Layers all sources. `env` is the environment ([`process_env`]).
///
/// # Errors
/// Every problem of every source, at once.
pub fn load(flags: &Overrides, env: &[(String, String)]) -> Result<Loaded, Problems> {
    let mut sources = Sources::default();
    sources.add_envoy_ratelimit(env);
    if let Some(path) = &flags.config {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => sources.add_file(&file, &text),
            Err(error) => {
                sources.problems.push(Problem::Unreadable { file, reason: error.to_string() });
            }
        }
    }
    sources.add_environment(env);
    sources.add_flags(flags);
    sources.finish(env)
}

/// Values by path, strongest so far.
#[derive(Debug)]
pub(super) struct Sources {
    fields: Vec<String>,
    leaves: BTreeMap<String, Leaf>,
    problems: Vec<Problem>,
}

impl Default for Sources {
    fn default() -> Self {
        let fields = fields().into_iter().map(|(path, _)| path).collect();
        Sources { fields, leaves: BTreeMap::new(), problems: Vec::new() }
    }
}

/// How a source spells the path of a setting.
type Spell<'a> = &'a dyn Fn(&str) -> String;

impl Sources {
    pub(super) fn add_envoy_ratelimit(&mut self, env: &[(String, String)]) {
        let leaves = envoy_ratelimit_env::translate(env).into_iter().chain(otel::translate(env));
        self.leaves.extend(leaves.map(|leaf| (leaf.path.clone(), leaf)));
    }

    pub(super) fn add_file(&mut self, file: &str, text: &str) {
        match File::from_str(text, FileFormat::Yaml).collect() {
            Ok(root) => {
                for (key, value) in root {
                    self.add(&key, value, file, &|path| path.to_owned());
                }
            }
            Err(error) => {
                let mut reason = error.to_string();
                // Of the wrong shape: its words show what stands there, perhaps a secret.
                if reason.contains("invalid type") {
                    "it has to be sections, such as `grpc:`".clone_into(&mut reason);
                }
                let file = file.to_owned();
                self.problems.push(Problem::NotYaml { file, reason });
            }
        }
    }

    pub(super) fn add_environment(&mut self, env: &[(String, String)]) {
        let ours = Environment::with_prefix("WEIR")
            .prefix_separator("__")
            .separator("__")
            .source(Some(env.iter().cloned().collect()));
        for (path, value) in ours.collect().expect("texts stay texts, nothing is parsed") {
            self.add(&path, value, &variable(&path), &variable);
        }
    }

    pub(super) fn add_flags(&mut self, flags: &Overrides) {
        let texts = [
            ("--store", "store.kind", &flags.store),
            ("--redis-url", "redis.url", &flags.redis_url),
            ("--grpc-listen", "grpc.listen", &flags.grpc_listen),
            ("--http-listen", "http.listen", &flags.http_listen),
            ("--admin-listen", "admin.listen", &flags.admin_listen),
        ];
        for (flag, path, text) in texts {
            if let Some(text) = text {
                self.put(path, flag, Value::from(text.as_str()));
            }
        }
        if !flags.rules.is_empty() {
            self.put("rules.paths", "--rules", Value::from(flags.rules.clone()));
        }
    }

    /// Takes a value or a tree of values, and complains about what is not a setting.
    fn add(&mut self, path: &str, value: Value, origin: &str, spell: Spell<'_>) {
        let is_setting = self.fields.iter().any(|field| field == path);
        let is_section = self.fields.iter().any(|field| starts_below(field, path));
        match value.kind {
            _ if is_setting => match texts(path, value) {
                Ok(value) => self.put(path, origin, value),
                Err(what) => self.bad_shape(path, origin, what),
            },
            ValueKind::Nil if is_section => {} // every setting below it is commented out
            ValueKind::Table(below) if is_section || !below.is_empty() => {
                for (key, value) in below {
                    self.add(&format!("{path}.{key}"), value, origin, spell);
                }
            }
            _ if is_section => {
                self.bad_shape(path, origin, "is a section; write its settings below its name");
            }
            _ => self.problems.push(Problem::UnknownKey {
                origin: origin.to_owned(),
                key: path.to_owned(),
                nearest: nearest(path, &self.fields).map(spell),
            }),
        }
    }

    fn put(&mut self, path: &str, origin: &str, value: Value) {
        let leaf = Leaf { path: path.to_owned(), origin: origin.to_owned(), value: Ok(value) };
        self.leaves.insert(leaf.path.clone(), leaf);
    }

    fn bad_shape(&mut self, path: &str, origin: &str, what: &'static str) {
        let (origin, key) = (origin.to_owned(), path.to_owned());
        self.problems.push(Problem::BadShape { origin, key, what });
    }

    pub(super) fn finish(mut self, env: &[(String, String)]) -> Result<Loaded, Problems> {
        let mut warnings =
            envoy_ratelimit_env::warnings(env, self.leaves.contains_key("store.kind"));
        warnings.extend(near_misses(env, &self.fields));
        let mut origins = Origins::default();
        let defaults = config::Config::try_from(&Raw::default()).expect("texts can be settings");
        let mut builder = config::Config::builder().add_source(defaults);
        for (path, leaf) in self.leaves {
            match leaf.value {
                Ok(value) => {
                    let known = "only names of settings get here, and they are paths";
                    builder = builder.set_override(&path, value).expect(known);
                    origins.add(path, leaf.origin);
                }
                Err(problem) => self.problems.push(problem),
            }
        }
        let raw = builder.build().and_then(config::Config::try_deserialize::<Raw>);
        let raw = raw.expect("the shape was checked value by value");
        match parse::parse(&raw, &origins) {
            Ok(settings) if self.problems.is_empty() => Ok(Loaded { settings, warnings }),
            Ok(_) => Err(Problems(self.problems)),
            Err(Problems(more)) => {
                self.problems.extend(more);
                Err(Problems(self.problems))
            }
        }
    }
}

/// `value` as the texts that the raw settings are made of.
fn texts(path: &str, value: Value) -> Result<Value, &'static str> {
    let is_list = path == "rules.paths";
    match value.kind {
        ValueKind::Nil => Err("has no value; write one, or delete the line"),
        ValueKind::Table(_) if !is_list => Err("is one value, not a section"),
        ValueKind::Array(_) if !is_list => Err("is one value, not a list"),
        ValueKind::Array(items) if items.iter().all(is_scalar) => {
            let items = items.iter().map(ToString::to_string);
            Ok(Value::from(items.collect::<Vec<String>>()))
        }
        ValueKind::Array(_) | ValueKind::Table(_) => Err("is a list of texts"),
        _ if is_list => {
            let text = value.to_string();
            let items = text.split(',').map(|item| item.trim().to_owned());
            Ok(Value::from(items.collect::<Vec<String>>()))
        }
        _ => Ok(Value::from(value.to_string())),
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value.kind, ValueKind::Nil | ValueKind::Table(_) | ValueKind::Array(_))
}

fn starts_below(field: &str, section: &str) -> bool {
    field.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

/// The variable that sets `path`.
fn variable(path: &str) -> String {
    format!("WEIR__{}", path.replace('.', "__").to_ascii_uppercase())
}

/// Variables that look like ours but for their underscores, such as `WEIR_GRPC_LISTEN`. They are no
/// errors, because Kubernetes makes variables that start with a service's name.
fn near_misses(env: &[(String, String)], fields: &[String]) -> Vec<String> {
    let plain = |name: &str| name.to_ascii_uppercase().replace('_', "");
    let mut warnings = Vec::new();
    for (name, _) in env {
        if !name.starts_with("WEIR_") || name.starts_with("WEIR__") {
            continue;
        }
        let meant = fields.iter().map(|path| variable(path)).find(|v| plain(v) == plain(name));
        warnings.extend(meant.map(|v| format!("{name} is ignored; did you mean {v}?")));
    }
    warnings.sort();
    warnings
}

/// The setting whose name is most like `path`, if any is like it at all.
fn nearest<'a>(path: &str, fields: &'a [String]) -> Option<&'a str> {
    let path = path.to_ascii_lowercase();
    let (distance, field) =
        fields.iter().map(|field| (edits(&path, field), field)).min_by_key(|(d, _)| *d)?;
    if distance <= 1 + field.len() / 6 {
        return Some(field);
    }
    // The right name in the wrong section, if only one section has it.
    let last = |path: &str| path.rsplit('.').next().map(str::to_owned);
    let mut named = fields.iter().filter(|field| last(field) == last(&path));
    named.next().filter(|_| named.next().is_none()).map(String::as_str)
}

/// How many characters must be put in, taken out or replaced to make `b` of `a`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
