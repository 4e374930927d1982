//! Tests of the request log: which requests get a line, its captures, and how it shows values.

use super::*;
use crate::decision::Code;
use crate::descriptor::{Descriptor, Entry, TraceContext};
use crate::limiter::{Backend, Limiter};
use crate::rules::{Options, SourceFile};
use crate::settings::{LineValues, ResponseSettings};
use crate::store::MemoryStore;

const NOW: Micros = Micros::from_secs(1_000_000_020);

const RULES: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {name: per-user, unit: hour, requests_per_unit: 1}}
  - {key: quiet, rate_limit: {unit: hour, requests_per_unit: 1, log: off}}
  - {key: denied, rate_limit: {unit: hour, requests_per_unit: 1, log: denied}}
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 1, log: all}}
  - {key: free, rate_limit: {unlimited: true, log: all}}
  - {key: plan, value: gold, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: token, value: fixed, rate_limit: {unit: hour, requests_per_unit: 1}}
";

fn rules(text: &str) -> RuleSet {
    let file = SourceFile { name: Arc::from("test.yaml"), text: text.to_owned() };
    let compiled = crate::rules::compile(&[file], &Options::default());
    compiled.unwrap_or_else(|problems| panic!("{problems:?}")).0
}

/// Settings with lines of all requests, and without a bound that a test reaches.
fn settings(requests: RequestLines) -> LogSettings {
    LogSettings { requests, requests_per_second: 1_000_000, ..LogSettings::default() }
}

fn log(settings: &LogSettings) -> RequestLog {
    let seed = KeySeed::fixed([1, 2]);
    let levels = ShownLevels { info: true, debug: false };
    RequestLog::with_levels(settings, seed, seed, NOW, levels)
}

fn request<'r>(descriptors: &'r [Descriptor<'r>]) -> Request<'r> {
    Request {
        domain: "d",
        descriptors,
        hits_addend: 0,
        timeout: None,
        trace: TraceContext::default(),
        must_decide: None,
    }
}

fn plain<'e>(entries: &'e [Entry<'e>]) -> Descriptor<'e> {
    Descriptor { entries, limit: None, hits_addend: None, is_negative_hits: false }
}

fn decide(rules: &RuleSet, limiter: &Limiter, request: &Request<'_>) -> Verdict {
    let verdict = limiter.check(rules, request, NOW);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(verdict)
}

fn limiter() -> Limiter {
    let backend = Backend::Memory(MemoryStore::new(1_000));
    Limiter::new(backend, KeySeed::fixed([1, 2]), ResponseSettings::default())
}

/// The descriptors of the lines about a request for these keys that passes, and one that is denied.
/// `None`: no line.
fn lines(rules: &RuleSet, log: &RequestLog, keys: &[&str]) -> [Option<usize>; 2] {
    let entries: Vec<[Entry<'_>; 1]> = keys.iter().map(|key| [Entry { key, value: "x" }]).collect();
    let descriptors: Vec<Descriptor<'_>> = entries.iter().map(|one| plain(one)).collect();
    let (request, limiter) = (request(&descriptors), limiter());
    [Code::Ok, Code::OverLimit].map(|code| {
        let verdict = decide(rules, &limiter, &request);
        assert_eq!(verdict.code, code, "{keys:?}");
        let base = (log.settings.requests, log.share);
        let found = wanted(rules, &request, &verdict, base, &log.captures(), NOW);
        found.map(|line| line.index)
    })
}

fn begin(log: &RequestLog, rules: &RuleSet, body: &str) -> Result<bool, CaptureProblem> {
    let request = CaptureRequest::from_json(body.as_bytes())?;
    log.begin(request, rules, "ann", NOW).map(|(_, replaces)| replaces)
}

#[test]
fn rules_and_settings_choose_requests() {
    use RequestLines::{All, Denied, Off};
    let rules = rules(RULES);
    for (requests, keys, expected) in [
        (Off, &["user"][..], [None, None]),
        (Denied, &["user"], [None, Some(0)]),
        (All, &["user"], [Some(0), Some(0)]),
        (Off, &["all"], [Some(0), Some(0)]),
        (Off, &["denied"], [None, Some(0)]),
        (All, &["denied"], [None, Some(0)]),
        (All, &["quiet"], [None, None]),
        // The line is about the first denial that asks for one.
        (Denied, &["quiet", "user"], [None, Some(1)]),
        (Denied, &["unknown", "user", "all"], [Some(2), Some(1)]),
        (All, &["unknown", "quiet"], [Some(0), Some(0)]),
        (Off, &["free", "user"], [Some(0), Some(0)]),
    ] {
        let found = lines(&rules, &log(&settings(requests)), keys);
        assert_eq!(found, expected, "{requests:?} {keys:?}");
    }
}

/// A capture adds lines, and never removes one.
#[test]
fn captures_add_lines() {
    let rules = rules(RULES);
    for (body, keys, expected) in [
        (r#"{"requests":"denied","for":"10m"}"#, ["user"], [None, Some(0)]),
        (r#"{"requests":"all","for":"10m"}"#, ["user"], [Some(0), Some(0)]),
        (r#"{"requests":"denied","for":"10m"}"#, ["all"], [Some(0), Some(0)]),
        (r#"{"requests":"denied","for":"10m"}"#, ["quiet"], [None, Some(0)]),
        (r#"{"requests":"all","for":"1h","domain":"d"}"#, ["user"], [Some(0), Some(0)]),
        (
            r#"{"requests":"all","for":"1m","domain":"d","rule":"per-user"}"#,
            ["user"],
            [Some(0), Some(0)],
        ),
        (
            r#"{"requests":"all","for":"1m","domain":"d","rule":"user"}"#,
            ["user"],
            [Some(0), Some(0)],
        ),
        (r#"{"requests":"all","for":"1m","domain":"d","rule":"user"}"#, ["quiet"], [None, None]),
    ] {
        let log = log(&settings(RequestLines::Off));
        assert_eq!(begin(&log, &rules, body), Ok(false), "{body}");
        assert_eq!(lines(&rules, &log, &keys), expected, "{body} {keys:?}");
        let later = NOW.saturating_add(Micros::from_secs(3_600));
        log.tick(later);
        assert_eq!(log.captures().len(), 0, "{body}");
        assert!(!log.is_on());
    }
}

#[test]
fn captures_have_bounds() {
    let rules = rules(RULES);
    let log = log(&settings(RequestLines::Off));
    let unknown = |why: &str| CaptureProblem::Unknown(why.to_owned());
    for (body, problem) in [
        (
            r#"{"requests":"all","for":"1m","domain":"e"}"#,
            unknown("domain: neither a file nor xDS defines `e`; did you mean `d`?"),
        ),
        (
            r#"{"requests":"all","for":"1m","domain":"d","rule":"pre-user"}"#,
            unknown(
                "rule: no rule of this domain has the name or selector `pre-user`; did you mean \
                 `per-user`?",
            ),
        ),
    ] {
        assert_eq!(begin(&log, &rules, body), Err(problem), "{body}");
    }
    for (body, why) in [
        ("", "write {\"requests\": \"denied\""),
        ("[]", "write {"),
        (r#"{"requests":"off","for":"1m"}"#, "DELETE /log"),
        (r#"{"requests":"some","for":"1m"}"#, "`denied`"),
        (r#"{"requests":"all"}"#, "`for`"),
        (r#"{"requests":"all","for":"1m","level":"debug"}"#, "`level`"),
        (r#"{"requests":"all","for":"61m"}"#, "at most 1h"),
        (r#"{"requests":"all","for":"0s"}"#, "for: `0s`"),
        (r#"{"requests":"all","for":"soon"}"#, "such as 10m"),
        (r#"{"requests":"all","for":"1m","sample":0}"#, "over 0"),
        (r#"{"requests":"all","for":"1m","sample":1.5}"#, "at most 1"),
        (r#"{"requests":"all","for":"1m","sample":-1}"#, "over 0"),
        (r#"{"requests":"all","for":"1m","rule":"user"}"#, "`domain`"),
    ] {
        match begin(&log, &rules, body) {
            Err(CaptureProblem::Invalid(error)) => assert!(error.contains(why), "{body}: {error}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    assert!(!log.is_on());
    // One per domain: each of these has another one.
    let more: String = (0..CAPTURES_MAX).map(|n| format!("---\ndomain: d{n}\n")).collect();
    let more = self::rules(&format!("domain: d\n{more}"));
    for n in 0..CAPTURES_MAX {
        let body = format!(r#"{{"requests":"all","for":"1m","domain":"d{n}"}}"#);
        assert_eq!(begin(&log, &more, &body), Ok(false));
    }
    let full = begin(&log, &more, r#"{"requests":"all","for":"1m","domain":"d"}"#);
    assert!(matches!(full, Err(CaptureProblem::Conflict(_))), "{full:?}");
    let again = begin(&log, &more, r#"{"requests":"denied","for":"1m","domain":"d3"}"#);
    assert_eq!(again, Ok(true), "it replaces the one with the same target");
    assert_eq!(log.captures().len(), CAPTURES_MAX);
    assert_eq!(log.end_all("bob", NOW).len(), CAPTURES_MAX);
    assert!(log.captures().is_empty() && !log.is_on());
}

/// The length is rounded up, and an end is not reached before its instant.
#[test]
fn a_capture_ends_at_its_instant() {
    let (rules, log) = (rules(RULES), log(&settings(RequestLines::Off)));
    let started = Micros(NOW.0 + 1);
    let request = CaptureRequest::from_json(br#"{"requests":"all","for":"1500ms"}"#).unwrap();
    let by = "x".repeat(1_000);
    let (capture, _) = log.begin(request, &rules, &by, started).unwrap();
    assert_eq!(capture.until, Micros(NOW.0 + 2_000_000));
    assert_eq!(capture.by.len(), 200);
    log.tick(Micros(capture.until.0 - 1));
    assert!(log.is_on());
    log.tick(capture.until);
    assert!(!log.is_on());
}

#[test]
fn a_hidden_level_refuses_captures() {
    let seed = KeySeed::fixed([1, 2]);
    let levels = ShownLevels { info: false, debug: false };
    let all = settings(RequestLines::All);
    let log = RequestLog::with_levels(&all, seed, seed, NOW, levels);
    assert!(!log.is_on(), "no line would be shown");
    let rules = rules(RULES);
    match begin(&log, &rules, r#"{"requests":"all","for":"1m"}"#) {
        Err(CaptureProblem::Conflict(why)) => assert!(why.contains("log.level"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rules_switch_the_log_on_and_off() {
    let log = log(&settings(RequestLines::Off));
    let quiet = "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unlimited: true, log: off}}\n";
    for (text, is_on) in [(RULES, true), (quiet, false), (RULES, true), ("domain: d\n", false)] {
        log.use_rules(&rules(text));
        assert_eq!(log.is_on(), is_on, "{text}");
    }
    begin(&log, &rules(RULES), r#"{"requests":"all","for":"1m"}"#).unwrap();
    log.use_rules(&rules(quiet));
    assert!(log.is_on(), "for the capture");
}

#[test]
fn lines_are_bounded_per_second() {
    let all = LogSettings { requests_per_second: 3, ..settings(RequestLines::All) };
    let (rules, log, limiter) = (rules(RULES), log(&all), limiter());
    let entries = [Entry { key: "user", value: "x" }];
    let descriptors = [plain(&entries)];
    let request = request(&descriptors);
    let verdict = decide(&rules, &limiter, &request);
    let counts = || (log.metrics.lines.get(), log.metrics.left_out.get());
    for _ in 0..5 {
        log.record(&rules, &request, &verdict, None, NOW);
    }
    assert_eq!(counts(), (3, 2));
    log.record(&rules, &request, &verdict, None, NOW.saturating_add(Micros::SECOND));
    assert_eq!(counts(), (4, 2));
    log.tick(NOW);
    assert_eq!(log.reported.load(Ordering::Relaxed), 2);
}

#[test]
fn a_sample_has_its_share_of_lines() {
    let quarter = LogSettings { requests_sample: 0.25, ..settings(RequestLines::All) };
    let (rules, limiter) = (rules(RULES), limiter());
    let entries = [Entry { key: "user", value: "x" }];
    let descriptors = [plain(&entries)];
    let request = request(&descriptors);
    let verdict = decide(&rules, &limiter, &request);
    let written = |log: &RequestLog| {
        for _ in 0..10_000 {
            log.record(&rules, &request, &verdict, None, NOW);
        }
        log.metrics.lines.get()
    };
    // The standard deviation is 43.
    let sampled = log(&quarter);
    let lines = written(&sampled);
    assert!((2_200..2_800).contains(&lines), "{lines}");
    assert_eq!(sampled.metrics.left_out.get(), 0, "what is not sampled is not left out");
    // The larger share applies.
    let whole = log(&quarter);
    begin(&whole, &rules, r#"{"requests":"all","for":"1m"}"#).unwrap();
    assert_eq!(written(&whole), 10_000);
}

/// Values of sensitive keys are hashed in every form, and the hash of the decision log is used.
#[test]
fn values_are_shown_as_set() {
    let (rules, limiter) = (rules(RULES), limiter());
    let hash = ValueHash::new(KeySeed::fixed([3, 4]));
    let of = |key: &str, value: &str| format!("{key}=hash:{}", hash.of(&Entry { key, value }));
    for (form, key, value, expected) in [
        (LineValues::Plain, "user", "a,b\n", r"user=a\,b\n".to_owned()),
        (LineValues::Hashed, "user", "ann", of("user", "ann")),
        (LineValues::None, "user", "ann", "user".to_owned()),
        (LineValues::Plain, "plan", "gold", "plan=gold".to_owned()),
        (LineValues::Hashed, "plan", "gold", "plan=gold".to_owned()),
        (LineValues::Hashed, "plan", "free", of("plan", "free")),
        (LineValues::None, "plan", "gold", "plan".to_owned()),
        (LineValues::Plain, "x-api-key", "k-17", of("x-api-key", "k-17")),
        (LineValues::Hashed, "token", "fixed", of("token", "fixed")),
        (LineValues::None, "cookie", "c", "cookie".to_owned()),
    ] {
        let values = ShownValues::new(form, hash);
        let entries = [Entry { key, value }];
        let descriptors = [plain(&entries)];
        let request = request(&descriptors);
        let verdict = decide(&rules, &limiter, &request);
        let (one, all) = values.at_info(&rules, &request, &verdict, 0);
        assert_eq!((one, all), (expected, None), "{form:?} {key}={value}");
        let plain = format!("{key}={}", crate::escape::one_line(&value.replace(',', r"\,")));
        let is_secret = ["x-api-key", "token", "cookie"].contains(&key);
        let expected = if is_secret { of(key, value) } else { plain };
        assert_eq!(values.at_debug(&entries), expected);
    }
}

#[test]
fn several_descriptors_are_listed_and_cut() {
    let (rules, limiter) = (rules(RULES), limiter());
    let values = ShownValues::new(LineValues::Plain, ValueHash::new(KeySeed::fixed([3, 4])));
    let long = "y".repeat(60_000);
    let user = [Entry { key: "user", value: "ann" }];
    let other = [Entry { key: "other", value: &long }];
    let descriptors: Vec<Descriptor<'_>> =
        [plain(&other), plain(&user)].into_iter().cycle().take(100).collect();
    let request = request(&descriptors);
    let verdict = decide(&rules, &limiter, &request);
    let (one, all) = values.at_info(&rules, &request, &verdict, 1);
    let all = all.expect("several");
    assert_eq!(one, "user=ann");
    assert!(all.contains("...; user=ann; ") && all.ends_with("; and 92 more"), "{all:.200}");
    assert!(all.len() < 2_000, "{}", all.len());
}
