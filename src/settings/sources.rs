//! The sources of settings: reads each one, and layers them so that stronger sources override weaker
//! ones.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use config::{Config, Environment, Source};

use super::problem::{Problem, Problems};
use super::reader::WrittenText;
use super::section::Setting;
use super::source_values::{SourceValue, SourceValues, list};
use super::{Settings, envoy_ratelimit_env, otel_env};
use crate::bounded_file;
use crate::escape::one_line;
use crate::spelling;
use crate::yaml::{self, Name, Node, NodeKind, Position};

/// Settings that flags override.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Settings file (docs/reference/settings.md lists every setting)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Rule files or folders
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub rules: Vec<String>,
    /// Store of the counters: memory or redis
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

/// Settings, and warnings for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
}

/// The process's environment. Text that is not Unicode is converted lossily.
pub fn process_env() -> Vec<(String, String)> {
    let text = |raw: std::ffi::OsString| raw.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// Loads the settings from all sources. `env` is the environment ([`process_env`]).
///
/// # Errors
/// All problems of all sources.
pub fn load(flags: &Flags, env: &[(String, String)]) -> Result<Loaded, Problems> {
    let read = |path: &PathBuf| (path.display().to_string(), bounded_file::read(path));
    layer(flags.config.as_ref().map(read), flags, env)
}

/// Layers the settings of all sources. `file` is the name of the settings file, and its content or the
/// reason why it cannot be read.
///
/// # Errors
/// All problems of all sources.
pub(super) fn layer(
    file: Option<(String, io::Result<Vec<u8>>)>,
    flags: &Flags,
    env: &[(String, String)],
) -> Result<Loaded, Problems> {
    let mut sources = SourceTexts::default();
    sources.add_other_programs(env);
    if let Some((file, content)) = file {
        match content.and_then(utf8) {
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

/// The text of a settings file.
fn utf8(content: Vec<u8>) -> io::Result<String> {
    String::from_utf8(content)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not a text in UTF-8"))
}

/// The texts of all sources so far, weakest first, and their problems.
struct SourceTexts {
    settings: Vec<Setting>,
    layers: Vec<SourceValues>,
    /// Bad values of the variables of other programs, by path. A stronger source may override them.
    weak: BTreeMap<String, Problem>,
    problems: Vec<Problem>,
}

impl Default for SourceTexts {
    fn default() -> Self {
        let settings = Settings::all();
        SourceTexts { settings, layers: Vec::new(), weak: BTreeMap::new(), problems: Vec::new() }
    }
}

impl SourceTexts {
    fn add_other_programs(&mut self, env: &[(String, String)]) {
        let mut texts = SourceValues::default();
        let values =
            envoy_ratelimit_env::translate(env).into_iter().chain(otel_env::translate(env));
        let last: BTreeMap<String, SourceValue> =
            values.map(|value| (value.path.clone(), value)).collect();
        for (path, value) in last {
            match value.value {
                Ok(text) => texts.set(&path, &value.origin, text),
                Err(problem) => {
                    self.weak.insert(path, problem);
                }
            }
        }
        self.layers.push(texts);
    }

    fn add_file(&mut self, file: &str, text: &str) {
        let at = |at: Position| format!("{file}:{}:{}", at.line, at.column);
        let parsed = yaml::parse(text);
        let faults = parsed.faults.into_iter();
        self.problems.extend(faults.map(|fault| {
            let hint = fault.hint;
            Problem::Syntax { origin: at(fault.at), what: fault.what, hint }
        }));
        let mut syntax = |node: &Node, what: &str, hint| {
            let (origin, what) = (at(node.at), what.to_owned());
            self.problems.push(Problem::Syntax { origin, what, hint });
        };
        let mut documents = parsed.documents.into_iter();
        let first = documents.next();
        if let Some(second) = documents.next() {
            syntax(&second, "a second document", "keep one document per settings file");
        }
        let mut texts = SourceValues::default();
        match first {
            Some(Node { kind: NodeKind::Map(sections), .. }) => {
                for (name, node) in sections {
                    self.add_node(&name.text, &name, &node, &at, &mut texts);
                }
            }
            Some(other) if !other.is_null() => {
                syntax(&other, "not a settings file", "write sections, such as `grpc:`");
            }
            _ => {}
        }
        self.layers.push(texts);
    }

    /// Adds the texts of `node`, and reports what is not a setting.
    fn add_node(
        &mut self,
        path: &str,
        name: &Name,
        node: &Node,
        at: &dyn Fn(Position) -> String,
        texts: &mut SourceValues,
    ) {
        let bad_shape = |what| {
            let (origin, key) = (at(node.at), path.to_owned());
            Problem::BadShape { origin, key, what }
        };
        if let Some(setting) = self.setting(path) {
            match text(setting, node) {
                Ok(text) => texts.set(path, &at(node.at), text),
                Err(what) => self.problems.push(bad_shape(what)),
            }
            return;
        }
        let is_section = self.is_section(path);
        match &node.kind {
            // A section without settings, for example because all are commented out.
            NodeKind::Scalar(scalar) if is_section && scalar.is_null() => {}
            NodeKind::Map(below) if is_section || !below.is_empty() => {
                for (name, node) in below {
                    self.add_node(&format!("{path}.{}", name.text), name, node, at, texts);
                }
            }
            _ if is_section => self.problems.push(bad_shape(NOT_A_SECTION)),
            _ => self.unknown(path, at(name.at), str::to_owned),
        }
    }

    fn add_environment(&mut self, env: &[(String, String)]) {
        let ours = Environment::with_prefix("WEIR")
            .prefix_separator("__")
            .separator("__")
            .source(Some(env.iter().cloned().collect()));
        let mut texts = SourceValues::default();
        for (path, value) in ours.collect().expect("texts stay texts, nothing is parsed") {
            let origin = variable(&path);
            if self.setting(&path).is_some() {
                texts.set(&path, &origin, value.to_string());
            } else if self.is_section(&path) {
                self.problems.push(Problem::BadShape { origin, key: path, what: NOT_A_SECTION });
            } else {
                self.unknown(&path, origin, variable);
            }
        }
        self.layers.push(texts);
    }

    fn add_flags(&mut self, flags: &Flags) {
        let mut set = SourceValues::default();
        let texts = [
            ("--store", "store.kind", &flags.store),
            ("--redis-url", "redis.url", &flags.redis_url),
            ("--grpc-listen", "grpc.listen", &flags.grpc_listen),
            ("--http-listen", "http.listen", &flags.http_listen),
            ("--admin-listen", "admin.listen", &flags.admin_listen),
        ];
        for (flag, path, text) in texts {
            if let Some(text) = text {
                set.set(path, flag, text.clone());
            }
        }
        if !flags.rules.is_empty() {
            set.set("rules.paths", "--rules", list(&flags.rules));
        }
        self.layers.push(set);
    }

    fn setting(&self, path: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.path == path)
    }

    fn is_section(&self, name: &str) -> bool {
        let below = |path: &str| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        self.settings.iter().any(|setting| below(&setting.path))
    }

    /// Reports a key that is no setting. `spell` formats a path in the syntax of this source.
    fn unknown(&mut self, key: &str, origin: String, spell: impl Fn(&str) -> String) {
        let nearest = nearest(key, &self.settings).map(spell);
        self.problems.push(Problem::UnknownKey { origin, key: key.to_owned(), nearest });
    }

    fn finish(mut self, env: &[(String, String)]) -> Result<Loaded, Problems> {
        let layers = self.layers.into_iter();
        let config = layers.fold(Config::builder(), |builder, layer| builder.add_source(layer));
        let mut written = written(config.build().and_then(|config| config.collect()));
        let unused_url = choose_store(&mut written);
        choose_rule_sources(&mut written);
        let mut warnings: Vec<String> = envoy_ratelimit_env::warning(env).into_iter().collect();
        warnings.extend(unused_url);
        warnings.extend(near_misses(env, &self.settings));
        let warnings = warnings.iter().map(|text| one_line(text).into_owned()).collect();
        let weak = self.weak.into_iter().filter(|(path, _)| !written.contains_key(path));
        self.problems.extend(weak.map(|(_, problem)| problem));
        match Settings::parse(&written) {
            Ok(settings) if self.problems.is_empty() => Ok(Loaded { settings, warnings }),
            Ok(_) => Err(Problems(self.problems)),
            Err(Problems(more)) => {
                self.problems.extend(more);
                Err(Problems(self.problems))
            }
        }
    }
}

const NOT_A_SECTION: &str = "is a section; write its settings below its name";

/// The strongest text of each setting, as the `config` library has layered them.
fn written(
    layered: Result<config::Map<String, config::Value>, config::ConfigError>,
) -> BTreeMap<String, WrittenText> {
    let sections = layered.expect("only paths of settings get here, and their values are texts");
    let mut written = BTreeMap::new();
    for (section, settings) in sections {
        add_written(section, settings, &mut written);
    }
    written
}

/// Adds the texts at and below `path`.
fn add_written(path: String, value: config::Value, written: &mut BTreeMap<String, WrittenText>) {
    if matches!(value.kind, config::ValueKind::Table(_)) {
        for (name, below) in value.into_table().expect("it is a table") {
            add_written(format!("{path}.{name}"), below, written);
        }
        return;
    }
    let origin = value.origin().unwrap_or_default().to_owned();
    let text = value.into_string().expect("sources hold texts");
    written.insert(path, WrittenText { text, origin });
}

/// Selects the redis store if `redis.url` is set and `store.kind` is not. Returns a warning if
/// `store.kind: memory` leaves `redis.url` unused.
fn choose_store(written: &mut BTreeMap<String, WrittenText>) -> Option<String> {
    let url_origin = written.get("redis.url")?.origin.clone();
    let Some(kind) = written.get("store.kind") else {
        let text = WrittenText { text: "redis".to_owned(), origin: url_origin };
        written.insert("store.kind".to_owned(), text);
        return None;
    };
    (kind.text == "memory").then(|| {
        format!(
            "redis.url ({url_origin}) has no effect with store.kind: memory ({}): each instance \
             counts in memory for itself; delete one of the two settings",
            kind.origin
        )
    })
}

/// Reads no rule files if `rules.xds.server` is set and `rules.paths` is not.
fn choose_rule_sources(written: &mut BTreeMap<String, WrittenText>) {
    let server = written.get("rules.xds.server").filter(|server| !server.text.is_empty());
    if let Some(WrittenText { origin, .. }) = server.cloned()
        && !written.contains_key("rules.paths")
    {
        let text = WrittenText { text: list(&[]), origin };
        written.insert("rules.paths".to_owned(), text);
    }
}

/// The text of a setting in a file.
fn text(setting: &Setting, node: &Node) -> Result<String, &'static str> {
    match &node.kind {
        NodeKind::Scalar(scalar) if scalar.is_null() => {
            Err("has no value; write one, or delete the line")
        }
        NodeKind::Scalar(scalar) => Ok(scalar.text.to_string()),
        NodeKind::Map(_) if !setting.is_list => Err("is one value, not a section"),
        NodeKind::List(_) if !setting.is_list => Err("is one value, not a list"),
        NodeKind::Map(_) => Err("is a list of texts"),
        NodeKind::List(items) => {
            let item = |item: &Node| match &item.kind {
                NodeKind::Scalar(scalar) if !scalar.is_null() => Some(scalar.text.to_string()),
                _ => None,
            };
            let items: Option<Vec<String>> = items.iter().map(item).collect();
            items.map(|items| list(&items)).ok_or("is a list of texts")
        }
    }
}

/// The variable that sets `path`.
fn variable(path: &str) -> String {
    format!("WEIR__{}", path.replace('.', "__").to_ascii_uppercase())
}

/// Warnings about variables that differ from weir's in underscores alone, such as
/// `WEIR_GRPC_LISTEN`. They are not errors, because Kubernetes sets variables that start with the
/// name of a service.
fn near_misses(env: &[(String, String)], settings: &[Setting]) -> Vec<String> {
    let plain = |name: &str| name.to_ascii_uppercase().replace('_', "");
    let mut warnings = Vec::new();
    for (name, _) in env {
        if !name.starts_with("WEIR_") || name.starts_with("WEIR__") {
            continue;
        }
        let variables = settings.iter().map(|setting| variable(&setting.path));
        let meant = variables.into_iter().find(|variable| plain(variable) == plain(name));
        warnings.extend(meant.map(|v| format!("{name} is ignored; did you mean {v}?")));
    }
    warnings.sort();
    warnings
}

/// The setting whose name is most similar to `key`; `None` if no name is similar.
fn nearest<'a>(key: &str, settings: &'a [Setting]) -> Option<&'a str> {
    let key = key.to_ascii_lowercase();
    let paths = settings.iter().map(|setting| setting.path.as_str());
    if let Some(path) = spelling::nearest(&key, paths.clone()) {
        return Some(path);
    }
    // Otherwise a setting of the same name in another section, if only one section has it.
    let last = |path: &str| path.rsplit('.').next().map(str::to_owned);
    let mut named = paths.filter(|path| last(path) == last(&key));
    named.next().filter(|_| named.next().is_none())
}
