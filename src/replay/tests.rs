//! Tests of whole replays: their verdicts are those of a limiter, and their sums are right.

use std::io::Cursor;

use futures_util::FutureExt;

use super::*;
use crate::decision::{Code, Verdict};
use crate::decision_record::DecisionRecord;
use crate::descriptor::{Descriptor, Entry, LEASE_KEY, Request, TraceContext};
use crate::key::KeySeed;
use crate::limit::{Override, Unit};
use crate::limiter::{Backend, Limiter};
use crate::rules::{Options, SourceFile, compile};
use crate::store::MemoryStore;
use crate::testing::Rng;
use crate::time::Micros;

mod reports;

/// Every algorithm, tiers, leases, and what else changes codes.
const DESCRIPTORS: &str = "
  - { key: window, rate_limit: { unit: second, requests_per_unit: 3 } }
  - { key: sliding, rate_limit: { algorithm: sliding_window, requests: 5, window: 2s } }
  - { key: log, rate_limit: { algorithm: sliding_window_log, requests: 4, window: 1s } }
  - { key: token, rate_limit: { algorithm: token_bucket, requests: 2, window: 1s, burst: 4 } }
  - { key: leaky, rate_limit: { algorithm: leaky_bucket, requests: 3, window: 1s, burst: 3 } }
  - { key: slots, rate_limit: { algorithm: concurrency, max: 3, hold: 5s } }
  - key: tokens
    rate_limit: { algorithm: sliding_window, requests: 20, window: 3s, reserve: { hold: 2s } }
  - key: tiers
    rate_limit:
      algorithm: sliding_window
      tiers: [{ requests: 2, window: 1s }, { requests: 9, window: 10s }]
  - { key: named, rate_limit: { name: named, unit: second, requests_per_unit: 1 } }
  - key: paid
    rate_limit: { unit: second, requests_per_unit: 9, replaces: [{ name: named }] }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: quota2, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: open, rate_limit: { unlimited: true } }
";

const KEYS: [&str; 15] = [
    "window", "sliding", "log", "token", "leaky", "slots", "tokens", "tiers", "named", "paid",
    "shadow", "quota", "quota2", "open", "unknown",
];

fn rules(texts: &[&str]) -> RuleSet {
    let file = |(index, text): (usize, &&str)| SourceFile {
        name: format!("{index}.yaml").into(),
        text: (*text).to_owned(),
    };
    let files: Vec<SourceFile> = texts.iter().enumerate().map(file).collect();
    let compiled = compile(&files, &Options::default());
    compiled.unwrap_or_else(|problems| panic!("{problems:#?}")).0
}

fn options() -> ReplayOptions {
    ReplayOptions {
        form: LineForm::DecisionLog,
        domain: None,
        top: 20,
        response: ResponseSettings::default(),
        on_error: OnError::default(),
        max_counters: 100_000,
    }
}

/// The entries of one descriptor.
type Entries = Vec<(String, String)>;

/// A service with counters in memory that records its decisions.
struct RecordingService {
    rules: RuleSet,
    limiter: Limiter,
    rng: Rng,
    now: Micros,
    recording: Vec<u8>,
    codes: Vec<Code>,
    denied_descriptors: usize,
    /// The open leases: the domain, the entries of the descriptor, and the id.
    leases: Vec<(&'static str, Entries, String)>,
    closed: usize,
}

impl RecordingService {
    fn new(seed: u64, response: &ResponseSettings) -> RecordingService {
        let backend = Backend::Memory(MemoryStore::new(100_000));
        let counted = format!("domain: counted\ndescriptors:{DESCRIPTORS}");
        let free = "domain: free\ndenied_requests: free\ndescriptors:";
        RecordingService {
            rules: rules(&[&counted, &format!("{free}{DESCRIPTORS}")]),
            limiter: Limiter::new(backend, KeySeed::random(), response.clone()),
            rng: Rng::new(seed),
            now: Micros::from_secs(1_772_366_400),
            recording: Vec::new(),
            codes: Vec::new(),
            denied_descriptors: 0,
            leases: Vec::new(),
            closed: 0,
        }
    }

    /// Decides and records a random call.
    fn call(&mut self) {
        self.now = self.now.saturating_add(Micros(self.rng.below(20_000)));
        if !self.leases.is_empty() && self.rng.chance(15) {
            let chosen = self.rng.below(self.leases.len() as u64) as usize;
            let (domain, mut entries, id) = self.leases.swap_remove(chosen);
            entries.push((LEASE_KEY.to_owned(), id));
            self.closed += 1;
            return self.decide(domain, &[entries]);
        }
        let domain = self.rng.pick(&["counted", "free", "unknown"]);
        let count = 1 + self.rng.below(3);
        let descriptors: Vec<Entries> = (0..count)
            .map(|_| {
                let value = self.rng.below(3).to_string();
                vec![(self.rng.pick(&KEYS).to_owned(), value)]
            })
            .collect();
        self.decide(domain, &descriptors);
    }

    fn decide(&mut self, domain: &'static str, sent: &[Entries]) {
        let entries: Vec<Vec<Entry<'_>>> = sent
            .iter()
            .map(|one| one.iter().map(|(key, value)| Entry { key, value }).collect())
            .collect();
        let rng = &mut self.rng;
        let descriptors: Vec<Descriptor<'_>> = entries
            .iter()
            .map(|entries| {
                let unit = Unit::Second;
                Descriptor {
                    entries,
                    limit: rng.chance(5).then_some(Override { requests_per_unit: 1, unit }),
                    hits_addend: rng.chance(50).then(|| rng.below(5)),
                    is_negative_hits: rng.chance(5),
                }
            })
            .collect();
        let request = Request {
            domain,
            descriptors: &descriptors,
            hits_addend: rng.below(3) as u32,
            timeout: None,
            trace: TraceContext::default(),
            must_decide: None,
        };
        let verdict = self.limiter.check(&self.rules, &request, self.now).now_or_never();
        let mut verdict = verdict.expect("memory answers at once");
        if let Some(rollback) = verdict.rollback.take() {
            rollback.commit();
        }
        let record = DecisionRecord::new(&self.rules, &request, &verdict, self.now, None);
        let opened: Vec<usize> =
            (0..sent.len()).filter(|index| record.descriptors[*index].lease.is_some()).collect();
        self.recording.extend(record.to_line().expect("a short line"));
        if let Some(id) = lease_id(&verdict) {
            for index in opened {
                self.leases.push((domain, sent[index].clone(), id.clone()));
            }
        }
        self.codes.push(verdict.code);
        let denied = verdict.statuses.iter().filter(|status| status.code == Code::OverLimit);
        self.denied_descriptors += denied.count();
    }

    /// How many calls were denied.
    fn denied(&self) -> u64 {
        self.codes.iter().filter(|code| **code == Code::OverLimit).count() as u64
    }
}

fn lease_id(verdict: &Verdict) -> Option<String> {
    Some(verdict.metadata.as_ref()?.get("lease")?.get("id")?.as_str()?.to_owned())
}

/// A replay by the rules that have decided the recording decides every call and every descriptor as
/// recorded, for every algorithm, with leases, and in every mode of responses.
#[test]
fn a_replay_decides_as_the_service_did() {
    for seed in 0..24 {
        let response = ResponseSettings {
            quota_mode: seed % 4 == 1,
            shadow_mode: seed % 4 == 2,
            ..ResponseSettings::default()
        };
        // The last recording has more batches than are sent ahead.
        let calls = if seed == 23 { 12_000 } else { 400 };
        let mut service = RecordingService::new(seed, &response);
        (0..calls).for_each(|_| service.call());
        let options = ReplayOptions { response, top: 100, ..options() };
        let recording = Cursor::new(&service.recording);
        let report = replay(recording, &service.rules, &service.rules, &options);
        let report = report.unwrap_or_else(|error| panic!("{error}"));

        let found = (report.calls.replayed, report.recorded.calls, report.lines.bad);
        assert_eq!(found, (calls, calls, 0), "seed {seed}: {report}");
        let denied = service.denied();
        let totals = &report.calls;
        let found = [totals.denied_by_old, totals.denied_by_new, totals.denied_by_both];
        assert_eq!(found, [denied; 3], "seed {seed}: {report}");
        let recorded = &report.recorded;
        let different = (recorded.denied_by_old_only, recorded.denied_in_recording_only);
        assert_eq!(different, (0, 0), "seed {seed}: {report}");
        assert_eq!(recorded.descriptors_different, 0, "seed {seed}: {report}");
        let by_rules: u64 = report.rules.iter().map(|rule| rule.new.denied).sum();
        assert_eq!(by_rules, service.denied_descriptors as u64, "seed {seed}: {report}");
        assert!(report.descriptors.is_empty() && totals.difference == Difference::default());
        let leases = [report.old_counters, report.new_counters];
        assert!(leases.iter().all(|counters| counters.leases_without_end == 0), "seed {seed}");
        // The calls are worth replaying.
        assert!(service.closed > 5 && service.denied_descriptors > 20, "seed {seed}: {report}");
        assert!(seed % 4 == 2 || denied > 5, "seed {seed}: {report}");
    }
}

/// The lines of the decision log take the fast path.
#[test]
fn recorded_lines_are_canonical() {
    let mut service = RecordingService::new(11, &ResponseSettings::default());
    (0..500).for_each(|_| service.call());
    let lines: Vec<&[u8]> = service.recording.trim_ascii_end().split(|it| *it == b'\n').collect();
    assert_eq!(lines.len(), 500);
    let mut call = line_call::LineCall::default();
    for line in lines {
        let text = String::from_utf8_lossy(line);
        assert!(canonical_line::read(line, &mut call).is_some(), "{text}");
    }
}

/// An error of the input ends the replay and its threads.
#[test]
fn an_error_of_the_input_is_returned() {
    struct Broken(Cursor<Vec<u8>>);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::other("the volume is gone")),
                bytes => Ok(bytes),
            }
        }
    }
    let mut service = RecordingService::new(7, &ResponseSettings::default());
    (0..3_000).for_each(|_| service.call());
    let input = Broken(Cursor::new(service.recording));
    let error = replay(input, &service.rules, &service.rules, &options()).expect_err("an error");
    assert_eq!(error.to_string(), "the volume is gone");
}
