//! Formats of settings: the accepted texts, their parser, and the form in which a value is shown.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::scalar;
use super::secret::Secret;
use crate::tls::SanName;

/// Upper bound for counts.
pub(super) const COUNT_MAX: u64 = 1_000_000;

type Parse<T> = Box<dyn Fn(&str) -> Result<T, String>>;

/// The format of a setting of type `T`.
pub(super) struct Format<T> {
    /// Parses a text. An error continues the sentence `"<text>" ...` and names a valid text.
    pub(super) parse: Parse<T>,
    /// Shows a value in a form that `parse` accepts, except for secrets.
    pub(super) show: Box<dyn Fn(&T) -> Json>,
    /// The valid texts, in words.
    pub(super) accepts: String,
    /// The JSON schema of valid values.
    pub(super) schema: Json,
    /// Whether the text is a secret. Its errors then do not repeat it.
    pub(super) is_secret: bool,
    /// Whether `weir.yaml` may contain a list. Its text is then a JSON list.
    pub(super) is_list: bool,
}

impl<T: 'static> Format<T> {
    fn new(
        accepts: impl Into<String>,
        schema: Json,
        parse: impl Fn(&str) -> Result<T, String> + 'static,
        show: impl Fn(&T) -> Json + 'static,
    ) -> Format<T> {
        Format {
            parse: Box::new(parse),
            show: Box::new(show),
            accepts: accepts.into(),
            schema,
            is_secret: false,
            is_list: false,
        }
    }
}

/// The schema of values that may be written in YAML without quotes.
fn any_scalar() -> Json {
    json!({ "type": ["string", "number", "boolean"] })
}

fn as_json<T: Serialize>(value: &T) -> Json {
    serde_json::to_value(value).expect("texts and numbers have a JSON form")
}

/// `true` or `false`.
pub(super) fn switch() -> Format<bool> {
    let schema = json!({ "enum": [true, false, "true", "false"] });
    Format::new("`true` or `false`", schema, scalar::switch, as_json)
}

/// A whole number in `range`.
pub(super) fn number<T: TryFrom<u64> + Serialize + 'static>(
    range: RangeInclusive<u64>,
) -> Format<T> {
    let (low, high) = (*range.start(), *range.end());
    let schema = json!({
        "type": ["integer", "string"], "minimum": low, "maximum": high, "pattern": "^[0-9]+$"
    });
    let parse = move |text: &str| {
        let number = scalar::whole(text, low..=high)?;
        T::try_from(number).map_err(|_| "is more than this machine can address".to_owned())
    };
    Format::new(format!("{low} to {high}"), schema, parse, as_json)
}

/// A whole number in `range`, or `off`.
pub(super) fn number_or_off(range: RangeInclusive<u64>) -> Format<Option<usize>> {
    let Format { parse, accepts, .. } = number(range);
    let parse = move |text: &str| match text {
        "off" | "false" | "none" => Ok(None),
        _ => parse(text).map(Some).map_err(|error| format!("{error}, or `off`")),
    };
    let show = |number: &Option<usize>| number.map_or_else(|| "off".into(), |number| json!(number));
    Format::new(format!("{accepts}, or `off`"), any_scalar(), parse, show)
}

/// A number of threads, or `auto`.
pub(super) fn threads() -> Format<Option<NonZeroUsize>> {
    let show = |number: &Option<NonZeroUsize>| number.map_or_else(|| "auto".into(), |n| json!(n));
    Format::new("`auto`, or 1 to 1024", any_scalar(), scalar::threads, show)
}

/// A number from 0 to 1. An empty text means no value.
pub(super) fn share() -> Format<Option<f64>> {
    let show = |share: &Option<f64>| share.map_or_else(|| "".into(), |share| json!(share));
    Format::new("0 to 1, or empty", any_scalar(), scalar::share, show)
}

/// A number from 0 to 1.
pub(super) fn portion() -> Format<f64> {
    let parse = |text: &str| {
        let share = scalar::share(text)?;
        share.ok_or_else(|| "is empty; write a number from 0 to 1".to_owned())
    };
    Format::new("0 to 1", any_scalar(), parse, as_json)
}

fn duration_schema() -> Json {
    json!({ "type": ["string", "integer"], "pattern": "^(0|([0-9.]+(ns|us|µs|μs|ms|s|m|h|d))+)$" })
}

fn show_duration(duration: &Duration) -> Json {
    scalar::write_duration(*duration).into()
}

/// A duration; `0` is valid.
pub(super) fn duration() -> Format<Duration> {
    Format::new("a duration", duration_schema(), scalar::duration, show_duration)
}

/// A duration over zero.
pub(super) fn positive_duration() -> Format<Duration> {
    Format::new("a duration over 0", duration_schema(), scalar::positive_duration, show_duration)
}

/// A whole number of seconds, at least `least`.
pub(super) fn whole_seconds(least: u64) -> Format<Duration> {
    let parse = move |text: &str| scalar::whole_seconds(text, least);
    let accepts = format!("whole seconds, at least {least}s");
    Format::new(accepts, duration_schema(), parse, show_duration)
}

/// A duration, or `off`. Zero also means off.
pub(super) fn duration_or_off() -> Format<Option<Duration>> {
    let show =
        |length: &Option<Duration>| length.map_or_else(|| "off".into(), |it| show_duration(&it));
    Format::new("a duration, or `off`", any_scalar(), scalar::duration_or_off, show)
}

/// A duration that may be negative, in microseconds.
pub(super) fn signed_duration() -> Format<i64> {
    let show = |micros: &i64| {
        let length = scalar::write_duration(Duration::from_micros(micros.unsigned_abs()));
        format!("{}{length}", if *micros < 0 { "-" } else { "" }).into()
    };
    Format::new("a duration, `-` before it", any_scalar(), scalar::signed_duration, show)
}

/// An address to listen on.
pub(super) fn address() -> Format<SocketAddr> {
    let schema = json!({ "type": "string" });
    Format::new("an address", schema, scalar::address, as_json)
}

/// One of `choices`, which are texts with their meanings. A value is shown as the first text of its
/// meaning.
pub(super) fn choice<T: Copy + PartialEq + 'static>(
    choices: impl Into<Vec<(&'static str, T)>>,
) -> Format<T> {
    let choices = choices.into();
    let mut values: Vec<Json> = choices.iter().map(|(text, _)| (*text).into()).collect();
    if choices.iter().any(|(text, _)| *text == "false") {
        values.push(false.into());
    }
    let accepts = scalar::recommended(&choices);
    let shown = choices.clone();
    Format::new(
        accepts,
        json!({ "enum": values }),
        move |text| scalar::choice(text, &choices),
        move |value| {
            shown.iter().find(|(_, meaning)| meaning == value).map(|(text, _)| *text).into()
        },
    )
}

/// Any text.
pub(super) fn text() -> Format<String> {
    Format::new("a text", any_scalar(), |text| Ok(text.to_owned()), as_json)
}

/// A text that `check` accepts.
pub(super) fn checked(
    accepts: &str,
    check: impl Fn(&str) -> Result<String, String> + 'static,
) -> Format<String> {
    Format::new(accepts, json!({ "type": "string" }), check, as_json)
}

/// A text that `format` accepts. An empty text means no value.
pub(super) fn optional<T: 'static>(format: Format<T>) -> Format<Option<T>> {
    let Format { parse, show, accepts, schema, is_secret, is_list } = format;
    let parse = move |text: &str| if text.is_empty() { Ok(None) } else { parse(text).map(Some) };
    let show = move |value: &Option<T>| value.as_ref().map_or_else(|| "".into(), &show);
    let accepts = format!("{accepts}, or empty");
    Format { is_secret, is_list, ..Format::new(accepts, schema, parse, show) }
}

/// Subject alternative names, separated by commas. An empty text means any name.
pub(super) fn san_names() -> Format<Vec<SanName>> {
    let show = |names: &Vec<SanName>| {
        let texts: Vec<&str> = names.iter().map(SanName::text).collect();
        texts.join(",").into()
    };
    Format::new("a text", any_scalar(), scalar::san_names, show)
}

/// Keys of entries, separated by commas. An empty text means none.
pub(super) fn entry_keys() -> Format<Vec<String>> {
    let show = |keys: &Vec<String>| keys.join(",").into();
    Format::new("keys, or empty", any_scalar(), scalar::entry_keys, show)
}

/// A path of a file.
pub(super) fn file() -> Format<PathBuf> {
    Format::new("a file", any_scalar(), |text| Ok(PathBuf::from(text)), as_json)
}

/// Paths: a list, or one text with commas.
pub(super) fn paths() -> Format<Vec<PathBuf>> {
    let texts = json!({ "type": ["array", "string"], "items": { "type": "string" } });
    Format { is_list: true, ..Format::new("files and folders", texts, scalar::paths, as_json) }
}

/// Like [`paths`]; an empty list or text means no path.
pub(super) fn optional_paths() -> Format<Vec<PathBuf>> {
    let Format { parse, accepts, schema, .. } = paths();
    let parse = move |text: &str| match text {
        "" | "[]" => Ok(Vec::new()),
        _ => parse(text),
    };
    let format = Format::new(format!("{accepts}, or none"), schema, parse, as_json);
    Format { is_list: true, ..format }
}

/// A text that is never shown.
pub(super) fn secret() -> Format<Secret> {
    let format = Format::new("a text", any_scalar(), |text| Ok(Secret::new(text)), as_json);
    Format { is_secret: true, ..format }
}

/// A URL whose password is never shown.
pub(super) fn url<T: Serialize + 'static>(
    accepts: &str,
    parse: impl Fn(&str) -> Result<T, String> + 'static,
) -> Format<T> {
    Format::new(accepts, json!({ "type": "string" }), parse, as_json)
}

/// A value whose JSON is masked.
pub(super) fn masked<T: Serialize + 'static>(
    accepts: &str,
    parse: impl Fn(&str) -> Result<T, String> + 'static,
) -> Format<T> {
    let format = Format::new(accepts, json!({ "type": "string" }), parse, as_json);
    Format { is_secret: true, ..format }
}
