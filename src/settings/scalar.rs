//! Parsers of single values: switches, numbers, durations, addresses, paths, names.
//!
//! The error of every function continues the sentence `"<text>" ...` and names a valid text.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::ServerName;

use super::secret::SecretUrl;
use crate::duration::{self, Style};
use crate::tls::SanName;

/// The longest duration of a setting. It is far below the overflow of instants.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// `true` or `false`, or another spelling of Go, for envoyproxy/ratelimit's variables.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(false),
        _ => Err("is neither true nor false; write `true` or `false`".to_owned()),
    }
}

/// A whole number in `range`.
pub(super) fn whole(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let (low, high) = (range.start(), range.end());
    text.parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("is not valid; write a whole number from {low} to {high}"))
}

/// A number of threads, or `auto`.
pub(super) fn threads(text: &str) -> Result<Option<NonZeroUsize>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let error = "is not valid; write `auto` or a whole number from 1 to 1024";
    let number = whole(text, 1..=1024).ok().and_then(|number| usize::try_from(number).ok());
    number.map(NonZeroUsize::new).ok_or_else(|| error.to_owned())
}

/// A duration in Go's style: `10ms`, `1h30m`, `1.5s`, or in days; at most 365 days.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let nanos = duration::parse(text, Style::Go)
        .map_err(|_| "is not a duration; write one such as `10ms`, `5s` or `1h30m`".to_owned())?;
    let too_long = || "is too long; write at most 365d".to_owned();
    let length = u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| too_long())?;
    if length > DURATION_MAX { Err(too_long()) } else { Ok(length) }
}

/// A duration that is not zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("is zero; write a duration such as `10ms`".to_owned()),
        length => Ok(length),
    }
}

/// A whole number of seconds, at least `least`.
pub(super) fn whole_seconds(text: &str, least: u64) -> Result<Duration, String> {
    let length = duration(text)?;
    if length.subsec_nanos() != 0 || length.as_secs() < least {
        return Err(format!(
            "is no whole number of seconds; write at least {least}s, such as `12s`"
        ));
    }
    Ok(length)
}

/// A duration in microseconds; a minus may precede it.
pub(super) fn signed_duration(text: &str) -> Result<i64, String> {
    let length = duration(text.strip_prefix('-').unwrap_or(text))?;
    let micros = i64::try_from(length.as_micros()).expect("a year of microseconds fits");
    Ok(if text.starts_with('-') { -micros } else { micros })
}

/// A duration, or `off`. Zero also means off, as in envoyproxy/ratelimit.
pub(super) fn duration_or_off(text: &str) -> Result<Option<Duration>, String> {
    if matches!(text, "off" | "false" | "none") {
        return Ok(None);
    }
    let length = duration(text).map_err(|error| format!("{error}, or `off`"))?;
    Ok(Some(length).filter(|length| !length.is_zero()))
}

/// Writes `duration` as a whole number of the largest unit that divides it.
pub(super) fn write_duration(duration: Duration) -> String {
    duration::single_unit(duration)
}

/// An address to listen on. `localhost` is the only name that is resolved. Without a host, it means
/// all addresses.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let spelled = match text.split_once(':') {
        Some(("", port)) => format!("[::]:{port}"),
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        _ => text.to_owned(),
    };
    spelled.parse().map_err(|_| {
        "is not an address to listen on; write an IP address and a port, \
         such as `[::]:8081`, `0.0.0.0:8081` or `127.0.0.1:0`"
            .to_owned()
    })
}

/// One of `choices`.
pub(super) fn choice<T: Copy + PartialEq>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, meaning)| *meaning);
    chosen.ok_or_else(|| format!("is not a choice; write {}", recommended(choices)))
}

/// The first spelling of each choice, as in "`off` or `on`".
pub(super) fn recommended<T: PartialEq>(choices: &[(&str, T)]) -> String {
    let mut names: Vec<String> = Vec::new();
    for (index, (name, meaning)) in choices.iter().enumerate() {
        if !choices[..index].iter().any(|(_, earlier)| earlier == meaning) {
            names.push(format!("`{name}`"));
        }
    }
    names.join(" or ")
}

/// A host and a port to connect to.
pub(super) fn host_and_port(text: &str) -> Result<String, String> {
    match text.parse::<http::uri::Authority>() {
        Ok(address)
            if address.port_u16().is_some()
                && !address.host().is_empty()
                && !text.contains('@') =>
        {
            Ok(text.to_owned())
        }
        _ => Err("is not a host and a port; write one such as `envoy-gateway:18001`".to_owned()),
    }
}

/// The address of a page: `http` or `https`, and a host, without a password.
pub(super) fn web_url(text: &str) -> Result<SecretUrl, String> {
    let what = "is not an address; write one such as `https://plans.example/v1/plans`, and put a \
                password into a file";
    let uri = text.parse::<http::Uri>().map_err(|_| what.to_owned())?;
    let is_known = match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(host)) => !host.is_empty(),
        (Some("https"), Some(host)) => is_server_name(host),
        _ => false,
    };
    if is_known && !text.contains('@') { Ok(SecretUrl::new(text)) } else { Err(what.to_owned()) }
}

/// Whether a certificate of a server can have the name `host`: a DNS name or an IP address, IPv6 with or
/// without brackets.
pub(super) fn is_server_name(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    ServerName::try_from(bare.unwrap_or(host)).is_ok()
}

/// Subject alternative names, separated by commas.
pub(super) fn san_names(text: &str) -> Result<Vec<SanName>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: Option<Vec<SanName>> = names.map(SanName::parse).collect();
    names.ok_or_else(|| {
        "has a part that is neither a DNS name nor a URI; write names such as `envoy.example` or \
         `spiffe://cluster.local/ns/a/sa/b`"
            .to_owned()
    })
}

/// Names and values: `name=value,name=value`.
pub(super) fn node_metadata(text: &str) -> Result<String, String> {
    let mut parts = text.split(',').filter(|part| !part.is_empty());
    if parts.all(|part| part.contains('=')) {
        Ok(text.to_owned())
    } else {
        Err("are not names and values; write `name=value,name=value`".to_owned())
    }
}

/// Keys of entries, separated by commas, each once.
pub(super) fn entry_keys(text: &str) -> Result<Vec<String>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let keys: Vec<String> = parts.map(str::to_owned).collect();
    for (index, key) in keys.iter().enumerate() {
        if keys[..index].contains(key) {
            return Err(format!("has `{key}` twice; write each key once"));
        }
    }
    Ok(keys)
}

/// A list of paths: as JSON, or separated by commas. `[]` is valid: the rules may come from a server.
pub(super) fn paths(text: &str) -> Result<Vec<PathBuf>, String> {
    let items: Vec<String> = serde_json::from_str(text)
        .unwrap_or_else(|_| text.split(',').map(|item| item.trim().to_owned()).collect());
    if items.iter().any(String::is_empty) {
        let what = "has an empty path; write files or folders, such as `[rules/]`";
        return Err(what.to_owned());
    }
    Ok(items.into_iter().map(PathBuf::from).collect())
}

/// The name of an HTTP header, kept as written.
pub(super) fn header_name(text: &str) -> Result<String, String> {
    match http::HeaderName::try_from(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("is not a header name; write one such as `RateLimit-Limit`".to_owned()),
    }
}

/// A number from 0 to 1. An empty text means no value.
pub(super) fn share(text: &str) -> Result<Option<f64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.map(Some).ok_or_else(|| "is not a share; write a number from 0 to 1".to_owned())
}

/// The path of a page: a slash, then characters that need no escaping.
pub(super) fn url_path(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
    if text.starts_with('/') && text.chars().all(plain) {
        return Ok(text.to_owned());
    }
    Err("is not a path; write one such as `/metrics`".to_owned())
}

/// A log level, or several levels with their modules.
pub(super) fn log_level(text: &str) -> Result<String, String> {
    let is_level = |level: &str| {
        ["off", "error", "warn", "info", "debug", "trace"]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(level))
    };
    // Other characters have a meaning in the filter of the log.
    let is_module = |module: &str| {
        let is_plain = |c: char| c.is_alphanumeric() || "_-:".contains(c);
        !module.is_empty() && module.chars().all(is_plain)
    };
    let fits = |part: &str| match part.split_once('=') {
        Some((module, level)) => is_module(module.trim()) && is_level(level),
        None => is_level(part),
    };
    if text.split(',').all(fits) {
        return Ok(text.to_owned());
    }
    Err("is not a log level; write off, error, warn, info, debug or trace, \
         or several such as `warn,weir::rules=debug`"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_as_in_go_and_reads_back() {
        let table = [
            ("10ms", 10_000_000, "10ms"),
            ("5s", 5_000_000_000, "5s"),
            ("1h30m", 5_400_000_000_000, "90m"),
            ("1.5h", 5_400_000_000_000, "90m"),
            (".5s", 500_000_000, "500ms"),
            ("24h", 86_400_000_000_000, "1d"),
            ("7d", 604_800_000_000_000, "7d"),
            ("1m0.001s", 60_001_000_000, "60001ms"),
            ("3us", 3_000, "3us"),
            ("3\u{b5}s", 3_000, "3us"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
        ];
        for (text, nanos, written) in table {
            let read = duration(text).unwrap_or_else(|error| panic!("{text} {error}"));
            assert_eq!(read, Duration::from_nanos(nanos), "{text}");
            assert_eq!(write_duration(read), written);
            assert_eq!(duration(&write_duration(read)), Ok(read));
        }
        let bad = ["", "5", "s", "5 s", "-5s", "+5s", "5x", "1..5s", ".s", "5s5", "1e3s", "9s9"];
        for text in bad {
            assert!(duration(text).is_err(), "{text:?} was read as a time");
        }
        let endless = format!("{}h", "9".repeat(19));
        for text in ["366d", "100000000h", endless.as_str()] {
            assert!(duration(text).is_err_and(|error| error.contains("365d")), "{text}");
        }
        assert!(duration(&format!("{}s", "9".repeat(400))).is_err());
    }

    #[test]
    fn an_address_has_an_ip_and_a_port() {
        let table = [
            ("[::]:8081", "[::]:8081"),
            (":8081", "[::]:8081"),
            ("0.0.0.0:8081", "0.0.0.0:8081"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:65535", "[::1]:65535"),
        ];
        for (text, meaning) in table {
            assert_eq!(address(text).map(|address| address.to_string()), Ok(meaning.to_owned()));
        }
        for text in ["", "8081", "0.0.0.0", "::1:8081x", "1.2.3.4:65536", "example.org:80"] {
            assert!(address(text).is_err(), "{text:?} was read as an address");
        }
    }

    #[test]
    fn numbers_have_a_range_and_choices_name_each_once() {
        assert_eq!(whole("7", 1..=7), Ok(7));
        for text in ["0", "8", "-1", "1.0", "", "7 ", "99999999999999999999"] {
            let error = whole(text, 1..=7).expect_err("out of range");
            assert!(error.contains("from 1 to 7"), "{text}: {error}");
        }
        assert_eq!(threads("auto"), Ok(None));
        assert_eq!(threads("2"), Ok(NonZeroUsize::new(2)));
        assert!(threads("0").is_err_and(|error| error.contains("`auto`")));
        let error = choice("x", &[("off", 0), ("false", 0), ("on", 1)]).expect_err("no choice");
        assert_eq!(error, "is not a choice; write `off` or `on`");
        assert_eq!(paths("a, b"), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(paths(r#"["a,b"]"#), Ok(vec!["a,b".into()]));
        assert_eq!(paths("[]"), Ok(Vec::new()));
        assert!(paths("").is_err());
    }

    #[test]
    fn addresses_of_pages_have_a_scheme_and_a_host() {
        for text in ["http://h", "http://h:1/p?q=1", "https://a.example/p", "https://[::1]:1"] {
            assert_eq!(web_url(text).map(|url| url.reveal().to_owned()), Ok(text.to_owned()));
        }
        for text in
            ["", "h:1", "/p", "ftp://h", "http://", "https://a..b", "http://u:p@h", "http:/h"]
        {
            let error = web_url(text).expect_err(text);
            assert!(error.contains("https://plans.example"), "{text}: {error}");
        }
    }

    #[test]
    fn levels_and_header_names_are_checked() {
        for level in ["info", "WARN", "warn,weir::rules=debug", "h2=off"] {
            assert_eq!(log_level(level).as_deref(), Ok(level));
        }
        for level in ["", "loud", "weir", "=info", "info,", "a[b=info", "[a]=info", "*=info"] {
            assert!(log_level(level).is_err(), "{level:?} was read as a level");
        }
        assert!(header_name("X-Left").is_ok() && header_name("X Left").is_err());
    }

    #[test]
    fn names_of_certificates_are_dns_names_ips_or_uris() {
        for name in ["h", "a_b.example", "127.0.0.1", "::1", "[::1]"] {
            assert!(is_server_name(name), "{name}");
        }
        for name in ["", "a b", "-a", "a..b", "[::1", "a:1"] {
            assert!(!is_server_name(name), "{name}");
        }
        let names = san_names(" a.example ,,spiffe://c/a").expect("names");
        assert_eq!(names, [SanName::Dns("a.example".into()), SanName::Uri("spiffe://c/a".into())]);
        assert_eq!(san_names(""), Ok(Vec::new()));
        assert!(san_names("a.example,*.example").is_err());
    }
}
