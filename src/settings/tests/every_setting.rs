//! Tests of every setting: it is read from the file and from its variable, and it is shown.

use super::*;

/// Texts of which each format accepts at least one, written as settings are shown. Numbers within
/// bounds and choices are not listed, because their schema has them.
const SAMPLES: [&str; 15] = [
    "sample",
    "hidden",
    "7",
    "off",
    "-5m",
    "3s",
    "4s",
    "20s",
    "0.25",
    "127.0.0.1:0",
    "/sample",
    "sample=hidden",
    "http://sample:1",
    "redis://sample:1",
    r#"["sample","other"]"#,
];

/// The value of the settings that another one needs.
const NEEDED_SAMPLE: &str = "sample";

/// The settings without which `path` is a problem.
fn needed(path: &str) -> impl Iterator<Item = &'static str> {
    let of_tls = ["grpc.tls_cert", "grpc.tls_key", "grpc.tls_client_ca"];
    let of_tls = of_tls.into_iter();
    let of_tls = of_tls.filter(move |needed| path.starts_with("grpc.tls_") && *needed != path);
    of_tls.chain((path == "plans.source").then_some("plans.file"))
}

/// A text with another value than the default, as the setting is shown.
fn sample(setting: &Setting, defaults: &BTreeMap<String, String>) -> String {
    let path = &setting.path;
    let bounds = ["minimum", "maximum"].into_iter().filter_map(|name| setting.schema.get(name));
    let choices = setting.schema.get("enum").and_then(|choices| choices.as_array());
    let choices = choices.into_iter().flatten().filter_map(|choice| choice.as_str());
    let mut candidates = bounds
        .map(ToString::to_string)
        .chain(choices.map(str::to_owned))
        .chain(SAMPLES.map(str::to_owned));
    let is_sample = |text: &String| {
        let written = |text: &str| WrittenText { text: text.to_owned(), origin: String::new() };
        let needed = needed(path).map(|needed| (needed.to_owned(), written(NEEDED_SAMPLE)));
        let all: BTreeMap<_, _> = needed.chain([(path.clone(), written(text))]).collect();
        let settings = Settings::parse(&all);
        *text != defaults[path] && settings.is_ok_and(|settings| shown(&settings)[path] == *text)
    };
    let found = candidates.find(is_sample);
    found.unwrap_or_else(|| panic!("no sample of {path} is shown as written: add one to SAMPLES"))
}

fn variable(path: &str) -> String {
    format!("WEIR__{}", path.replace('.', "__")).to_uppercase()
}

/// The variable of a setting, and the text in it for a sample.
fn in_env(setting: &Setting, sample: &str) -> (String, String) {
    let variable = variable(&setting.path);
    let syntax: &[char] = if setting.is_list { &['[', ']', '"'] } else { &[] };
    (variable, sample.replace(syntax, ""))
}

#[test]
fn every_setting_has_a_key_a_variable_and_is_shown() {
    let defaults = shown(&Settings::default());
    let settings = Settings::all();
    assert_eq!(settings.len(), defaults.len(), "every setting is shown, each under its own name");
    for setting in settings {
        let (path, text) = (&setting.path, sample(&setting, &defaults));
        let names = path.split('.').enumerate();
        let lines: Vec<String> =
            names.map(|(depth, name)| format!("{}{name}:", "  ".repeat(depth))).collect();
        let file = format!("{} {text}\n", lines.join("\n"));
        let needed: Vec<String> = needed(path).map(variable).collect();
        let mut env: Vec<(&str, &str)> =
            needed.iter().map(|variable| (variable.as_str(), NEEDED_SAMPLE)).collect();
        assert_eq!(value_of(run(&file, &env, Flags::default()), path), text, "{file}");
        let (variable, in_env) = in_env(&setting, &text);
        env.push((&variable, &in_env));
        let loaded = run(NO_FILE, &env, Flags::default());
        assert_eq!(value_of(loaded, path), text, "{variable}={in_env}");
    }
}

#[test]
fn shown_settings_are_a_valid_settings_file() {
    let defaults = shown(&Settings::default());
    let all = Settings::all();
    let env = all.iter().map(|setting| in_env(setting, &sample(setting, &defaults)));
    let first = load(&Flags::default(), &env.collect::<Vec<_>>()).expect("valid").settings;
    let changed = shown(&first);
    for (path, default) in &defaults {
        assert_ne!(changed[path], *default, "{path}");
    }
    for settings in [first, Settings::default(), Settings::for_testing()] {
        let again = run(&settings.to_json().to_string(), &[], Flags::default());
        assert_eq!(again.expect("valid").settings, settings);
    }
}
