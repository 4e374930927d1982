//! Tests of records: their text, their hashes, and reading them again.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::descriptor::TraceContext;
use crate::limit::Unit;
use crate::limiter::{Backend, Limiter};
use crate::rules::{Options, SourceFile};
use crate::settings::ResponseSettings;
use crate::store::MemoryStore;

const NOW: Micros = Micros::from_secs(1_000_000_020);

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: {name: per-user, unit: hour, requests_per_unit: 3}
  - key: path
    value: /login
    descriptors:
      - {key: ip, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: job, rate_limit: {algorithm: concurrency, max: 1, hold: 1h}}
  - key: model
    rate_limit: {unit: hour, requests_per_unit: 9, cost: {by: model, factors: {large: 2}}}
  - {key: trial, rate_limit: {unit: hour, requests_per_unit: 9, shadow: {requests: 1}}}
";

/// Decides requests of domain `d` and records them.
struct Bench {
    rules: RuleSet,
    limiter: Limiter,
}

impl Bench {
    fn new() -> Bench {
        let file = SourceFile { name: Arc::from("test.yaml"), text: RULES.to_owned() };
        let (rules, _) = crate::rules::compile(&[file], &Options::default())
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        let backend = Backend::Memory(MemoryStore::new(1_000));
        let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), ResponseSettings::default());
        Bench { rules, limiter }
    }

    fn decide(&self, request: &Request<'_>) -> Verdict {
        let verdict = self.limiter.check(&self.rules, request, NOW);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(verdict)
    }

    /// The line of a request with these descriptors.
    fn line(&self, descriptors: &[Descriptor<'_>], hash: Option<&ValueHash>) -> String {
        let request = request(descriptors);
        let verdict = self.decide(&request);
        let record = DecisionRecord::new(&self.rules, &request, &verdict, NOW, hash);
        String::from_utf8(record.to_line().expect("a short record")).expect("JSON is UTF-8")
    }
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

fn entry<'e>(key: &'e str, value: &'e str) -> Entry<'e> {
    Entry { key, value }
}

#[test]
fn a_record_has_the_documented_fields() {
    let bench = Bench::new();
    let user = [entry("user", "ann")];
    let login = [entry("path", "/login"), entry("ip", "10.0.0.1")];
    let other = [entry("other", "")];
    let refund = Descriptor { hits_addend: Some(2), is_negative_hits: true, ..plain(&user) };
    let limit = Some(Override { requests_per_unit: 5, unit: Unit::Minute });
    let of_ann = r#"{"entries":[["user","ann"]],"#;
    let of_other = r#"{"entries":[["other",""]],"code":"OK","reason":"no_rule"}"#;
    let by_name = r#""rule":"per-user","reason":"counted","remaining""#;
    for (descriptors, expected) in [
        (
            [plain(&user), plain(&other)],
            format!(r#"[{of_ann}"code":"OK",{by_name}:2}},{of_other}],"code":"OK"}}"#),
        ),
        (
            [plain(&login), refund],
            [
                r#"[{"entries":[["path","/login"],["ip","10.0.0.1"]],"code":"OVER_LIMIT","#,
                r#""rule":"path=/login,ip","reason":"counted","remaining":0},"#,
                of_ann,
                r#""hits":2,"negative":true,"code":"OK","#,
                by_name,
                r#":3}],"code":"OVER_LIMIT"}"#,
            ]
            .concat(),
        ),
        (
            [Descriptor { limit, ..plain(&user) }, plain(&other)],
            [
                "[",
                of_ann,
                r#""limit":{"requests_per_unit":5,"unit":"minute"},"code":"OK","#,
                r#""reason":"override","remaining":4},"#,
                of_other,
                r#"],"code":"OK"}"#,
            ]
            .concat(),
        ),
    ] {
        let start = r#"{"at":1000000020000000,"domain":"d","hits":0,"descriptors":"#;
        assert_eq!(bench.line(&descriptors, None), format!("{start}{expected}\n"));
    }
}

#[test]
fn a_lease_is_recorded_where_it_was_taken() {
    let bench = Bench::new();
    let (job, user) = ([entry("job", "a")], [entry("user", "ann")]);
    let hash = ValueHash::new(KeySeed::fixed([3, 4]));
    for hash in [None, Some(&hash)] {
        let descriptors = [plain(&user), plain(&job)];
        let request = request(&descriptors);
        let verdict = bench.decide(&request);
        let record = DecisionRecord::new(&bench.rules, &request, &verdict, NOW, hash);
        assert_eq!(record.descriptors[0].lease, None, "its rule has no leases");
        let recorded = record.descriptors[1].lease.clone().expect("a slot was taken").into_owned();
        let id = lease(&verdict).expect("the response has it").to_owned();
        assert_eq!(recorded == id, hash.is_none());
        if let Some(rollback) = verdict.rollback {
            rollback.commit();
        }
        // Closing the lease has the same text, so that a reader can match the two.
        let closing = [entry("job", "a"), entry("lease", &id)];
        let line = bench.line(&[plain(&closing)], hash);
        let again = RecordedRequest::from_line(line.as_bytes()).expect("a valid line");
        assert_eq!(again.descriptors[0].entries[1].1, recorded);
        assert_eq!(again.descriptors[0].lease, None, "{line}");
    }
}

#[test]
fn a_what_if_limit_has_its_own_code() {
    let bench = Bench::new();
    let (other, trial) = ([entry("other", "")], [entry("trial", "x")]);
    for what_if in ["OK", "OVER_LIMIT"] {
        let line = bench.line(&[plain(&other), plain(&trial)], None);
        let record: Value = serde_json::from_str(&line).expect("JSON");
        assert!(record["descriptors"][0].get("what_if").is_none(), "{line}");
        let trial = &record["descriptors"][1];
        assert_eq!((&trial["code"], &trial["what_if"]), (&"OK".into(), &what_if.into()), "{line}");
    }
}

/// A denied slot is no lease.
#[test]
fn a_denied_request_has_no_lease() {
    let bench = Bench::new();
    let job = [entry("job", "a")];
    let descriptors = [plain(&job)];
    let first = bench.decide(&request(&descriptors));
    let line = bench.line(&[plain(&job)], None);
    assert!(line.contains(r#""code":"OVER_LIMIT""#) && !line.contains("lease"), "{line}");
    drop(first);
}

#[test]
fn a_hash_hides_all_but_values_of_rules() {
    let bench = Bench::new();
    let hash = ValueHash::new(KeySeed::fixed([3, 4]));
    let line = |entries: &[Entry<'_>]| -> Value {
        let line = bench.line(&[plain(entries)], Some(&hash));
        let mut line: Value = serde_json::from_str(&line).expect("JSON");
        line["descriptors"][0]["entries"].take()
    };
    let login = line(&[entry("path", "/login"), entry("ip", "10.0.0.1")]);
    assert_eq!(login[0][1], "/login", "the selector of the rule has it");
    let ip = login[1][1].as_str().expect("a text").to_owned();
    assert!(ip.len() == 32 && ip.bytes().all(|it| it.is_ascii_hexdigit()), "{ip}");
    let unmatched = line(&[entry("path", "/logout"), entry("ip", "10.0.0.1")]);
    assert_eq!(unmatched[1][1], ip, "equal values of a key have equal hashes");
    assert_ne!(unmatched[0][1], "/logout", "no rule has it");
    assert_ne!(line(&[entry("user", "10.0.0.1")])[0][1], ip, "another key");
    assert_eq!(line(&[entry("model", "large")])[0][1], "large", "a factor needs it");
    assert_ne!(line(&[entry("model", "other")])[0][1], "other");
    let other = ValueHash::new(KeySeed::fixed([3, 5]));
    assert_ne!(other.of(&entry("ip", "10.0.0.1")), ip, "another seed");
}

#[test]
fn a_record_over_the_bound_is_no_line() {
    let bench = Bench::new();
    let rest = bench.line(&[plain(&[entry("user", "")])], None).len();
    for (size, fits) in [(LINE_BYTES_MAX - rest, true), (LINE_BYTES_MAX - rest + 1, false)] {
        let value = "x".repeat(size);
        let entries = [entry("user", &value)];
        let descriptors = [plain(&entries)];
        let request = request(&descriptors);
        let verdict = bench.decide(&request);
        let record = DecisionRecord::new(&bench.rules, &request, &verdict, NOW, None);
        let line = record.to_line();
        assert_eq!(line.map(|line| line.len()), fits.then_some(LINE_BYTES_MAX));
    }
}

#[test]
fn only_a_valid_trace_id_is_recorded() {
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = |id: &str| format!("00-{id}-00f067aa0ba902b7-01");
    assert_eq!(trace_id(&parent(id)), Some(id));
    for wrong in ["", "00-", &parent(""), &parent(&id[1..]), &parent(&id.to_uppercase()), id] {
        assert_eq!(trace_id(wrong), None, "{wrong}");
    }
    assert_eq!(trace_id(&parent(&"0".repeat(32))), None, "the specification forbids it");
    let bench = Bench::new();
    let (user, parent) = ([entry("user", "ann")], parent(id));
    let (descriptors, traceparent) = ([plain(&user)], Some(&*parent));
    let trace = TraceContext { traceparent, tracestate: None };
    let request = Request { trace, ..request(&descriptors) };
    let verdict = bench.decide(&request);
    assert_eq!(DecisionRecord::new(&bench.rules, &request, &verdict, NOW, None).trace, Some(id));
}

#[test]
fn a_line_of_other_programs_is_read() {
    let line = br#"{"more":{"x":[null]},"descriptors":[{"entries":[["k","a\nb"]],"limit":null,
        "hits":9007199254740991}],"domain":"d","at":7}"#;
    let read = RecordedRequest::from_line(line).expect("the rest is optional");
    assert_eq!((read.at, &*read.domain, read.hits, read.code), (7, "d", 0, None));
    assert!(matches!(read.domain, Cow::Borrowed(_)), "nothing to unescape");
    let [descriptor] = &read.descriptors[..] else { panic!("{read:?}") };
    assert_eq!(descriptor.hits, Some((1 << 53) - 1));
    assert_eq!((descriptor.negative, descriptor.limit, descriptor.code), (false, None, None));
    assert_eq!(descriptor.entries[0].as_entry(), entry("k", "a\nb"));
    assert!(matches!(descriptor.entries[0].0, Cow::Borrowed(_)));
}

#[test]
fn a_wrong_line_is_an_error() {
    let descriptor = r#"{"entries":[["k","v"]]}"#;
    let with = |rest: &str| format!(r#"{{"at":1,"domain":"d","descriptors":[{rest}]}}"#);
    assert!(RecordedRequest::from_line(with(descriptor).as_bytes()).is_ok());
    for line in [
        String::new(),
        "[]".to_owned(),
        with(descriptor) + "x",
        with(descriptor).replace("\"at\":1,", ""),
        with(descriptor).replace("\"at\":1", "\"at\":-1"),
        with(descriptor).replace("\"domain\":\"d\",", ""),
        with(r#"{"entries":[["k"]]}"#),
        with(r#"{"entries":[["k","v","w"]]}"#),
        with(r#"{"entries":[["k",1]]}"#),
        with(r#"{"entries":[],"hits":-1}"#),
        with(r#"{"entries":[],"code":"ok"}"#),
        with(r#"{"entries":[],"limit":{"requests_per_unit":1,"unit":"decade"}}"#),
    ] {
        assert!(RecordedRequest::from_line(line.as_bytes()).is_err(), "{line}");
    }
    assert!(RecordedRequest::from_line(b"{\"at\":1,\"domain\":\"\xff\"}").is_err());
}

proptest! {
    /// Hostile keys and values stay on their line, and are read as they were sent.
    #[test]
    fn a_record_is_read_as_it_was_sent(
        values in prop::collection::vec((".{1,8}", any::<String>()), 0..4),
        hits in prop::option::of(0_u64..1 << 53),
        negative: bool,
    ) {
        let bench = Bench::new();
        let entries: Vec<Entry<'_>> =
            values.iter().map(|(key, value)| entry(key, value)).collect();
        let sent =
            Descriptor { hits_addend: hits, is_negative_hits: negative, ..plain(&entries) };
        let line = bench.line(&[sent], None);
        prop_assert_eq!(line.matches(['\n', '\r']).count(), 1);
        prop_assert!(line.ends_with('\n'), "{}", line);
        let read = RecordedRequest::from_line(line.as_bytes()).expect("a valid line");
        let [descriptor] = &read.descriptors[..] else { panic!("{read:?}") };
        let read: Vec<Entry<'_>> =
            descriptor.entries.iter().map(RecordedEntry::as_entry).collect();
        prop_assert_eq!(read, entries);
        prop_assert_eq!((descriptor.hits, descriptor.negative), (hits, negative));
    }
}
