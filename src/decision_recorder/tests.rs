//! Tests of the decision log as a whole: which requests are recorded, and what is dropped.

use super::*;
use crate::decision::{DecisionReason, Status};
use crate::descriptor::{Descriptor, Entry};
use crate::time::ManualClock;

const NOW: Micros = Micros::from_secs(1_700_000_000);

/// A log in a temporary folder.
struct Log {
    _folder: tempfile::TempDir,
    path: PathBuf,
    settings: DecisionLogSettings,
}

impl Log {
    /// A log of all requests, however many.
    fn new() -> Log {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("decisions.log");
        let settings = DecisionLogSettings {
            path: Some(path.clone()),
            max_per_second: 1_000_000,
            ..DecisionLogSettings::default()
        };
        Log { _folder: folder, path, settings }
    }

    fn start(&self) -> (DecisionRecorder, RecordWriter) {
        let clock = ManualClock::at(NOW);
        let started = DecisionRecorder::start(&self.settings, KeySeed::fixed([1, 2]), clock);
        started.expect("a new file").expect("a path")
    }

    fn lines(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&self.path).expect("the log");
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Records a request for `user=VALUE` that has got `code`.
fn record(recorder: &DecisionRecorder, value: &str, code: Code, at: Micros) {
    let entries = [Entry { key: "user", value }];
    let descriptors =
        [Descriptor { entries: &entries, limit: None, hits_addend: None, is_negative_hits: false }];
    let request = Request {
        domain: "d",
        descriptors: &descriptors,
        hits_addend: 0,
        timeout: None,
        trace: Default::default(),
        must_decide: None,
    };
    let reason = DecisionReason::NoRule;
    let status = Status { code, limit: None, remaining: 0, reset_after: None, reason };
    let verdict = Verdict {
        code,
        statuses: vec![status],
        headers: Vec::new(),
        metadata: None,
        shadowed: false,
        rollback: None,
        what_if: Default::default(),
    };
    recorder.record(&RuleSet::default(), &request, &verdict, at);
}

fn dropped(recorder: &DecisionRecorder) -> [u64; 4] {
    DropCause::ALL.map(|cause| recorder.metrics().dropped(cause).get())
}

#[tokio::test]
async fn every_line_is_written_before_the_end() {
    let log = Log::new();
    for round in 1..=2 {
        let (recorder, writer) = log.start();
        for number in 0..500 {
            record(&recorder, &number.to_string(), Code::Ok, Micros(NOW.0 + number));
        }
        writer.end().await;
        assert_eq!((recorder.metrics().written.get(), dropped(&recorder)), (500, [0; 4]));
        let lines = log.lines();
        assert_eq!(lines.len(), 500 * round, "a start appends");
        for (line, number) in lines[500 * (round - 1)..].iter().zip(0_u64..) {
            assert_eq!(line["at"], NOW.0 + number);
            assert_eq!(line["descriptors"][0]["entries"][0][1], number.to_string());
        }
        record(&recorder, "late", Code::Ok, NOW);
        assert_eq!(dropped(&recorder), [0, 1, 0, 0], "the log has ended");
    }
}

#[tokio::test]
async fn only_denied_requests_are_recorded_on_request() {
    let mut log = Log::new();
    log.settings.only = LoggedRequests::Denied;
    let (recorder, writer) = log.start();
    for (value, code) in [("a", Code::Ok), ("b", Code::OverLimit), ("c", Code::Ok)] {
        record(&recorder, value, code, NOW);
    }
    writer.end().await;
    let lines = log.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["code"], dropped(&recorder)), (&"OVER_LIMIT".into(), [0; 4]));
}

/// The seed of the random numbers is the instant of the start, which is the same in each run.
#[tokio::test]
async fn a_sample_is_a_share_of_the_requests() {
    for (sample, expected) in [(0.0, 0..=0), (0.25, 2_300..=2_700), (1.0, 10_000..=10_000)] {
        let mut log = Log::new();
        log.settings.sample = sample;
        let (recorder, writer) = log.start();
        for _ in 0..10_000 {
            record(&recorder, "a", Code::Ok, NOW);
        }
        writer.end().await;
        let written = recorder.metrics().written.get() + dropped(&recorder)[1];
        assert!(expected.contains(&written), "{sample}: {written}");
        assert_eq!(dropped(&recorder)[0], 0, "what is not sampled is not dropped");
    }
}

#[tokio::test]
async fn lines_over_a_bound_are_dropped_and_counted() {
    let mut log = Log::new();
    log.settings.max_per_second = 2;
    let (recorder, writer) = log.start();
    let large = "x".repeat(1 << 20);
    let second = |number: u64| Micros(NOW.0 + number * Micros::SECOND.0);
    for at in [0, 0, 0, 0, 1].map(second) {
        record(&recorder, "a", Code::Ok, at);
    }
    record(&recorder, &large, Code::Ok, second(1));
    writer.end().await;
    assert_eq!((log.lines().len(), dropped(&recorder)), (3, [2, 0, 1, 0]));
}

/// A worker does not wait for a writer that is behind: here there is none.
#[test]
fn a_full_queue_drops_lines() {
    let log = Log::new();
    let queue = Arc::new(LineQueue::new(1_000));
    let recorder = DecisionRecorder::new(&log.settings, KeySeed::fixed([1, 2]), NOW, queue);
    for _ in 0..100 {
        record(&recorder, "a", Code::Ok, NOW);
    }
    let [_, of_queue, ..] = dropped(&recorder);
    assert!((80..100).contains(&of_queue), "{of_queue}");
}

#[tokio::test]
async fn lost_lines_are_counted_while_the_folder_is_gone() {
    let log = Log::new();
    let folder = log.path.parent().expect("a folder");
    let away = folder.with_extension("away");
    let (recorder, writer) = log.start();
    std::fs::rename(folder, &away).expect("a rename");
    record(&recorder, "a", Code::Ok, NOW);
    writer.end().await;
    assert_eq!((recorder.metrics().written.get(), dropped(&recorder)), (0, [0, 0, 0, 1]));
    std::fs::rename(&away, folder).expect("a rename");
    let (recorder, writer) = log.start();
    record(&recorder, "b", Code::Ok, NOW);
    writer.end().await;
    assert_eq!((recorder.metrics().written.get(), log.lines().len()), (1, 1));
}

#[tokio::test]
async fn hashed_values_are_not_in_the_log() {
    let mut log = Log::new();
    log.settings.values = LoggedValues::Hashed;
    let (recorder, writer) = log.start();
    for value in ["a-secret", "a-secret", "b-secret"] {
        record(&recorder, value, Code::Ok, NOW);
    }
    writer.end().await;
    let text = std::fs::read_to_string(&log.path).expect("the log");
    assert!(!text.contains("secret"), "{text}");
    let lines = log.lines();
    let [first, second, third] = [0, 1, 2].map(|at| &lines[at]["descriptors"][0]["entries"][0][1]);
    assert!(first == second && first != third, "{text}");
}

#[test]
fn without_a_path_there_is_no_log() {
    let settings = DecisionLogSettings::default();
    let started = DecisionRecorder::start(&settings, KeySeed::random(), ManualClock::at(NOW));
    assert!(started.expect("nothing to open").is_none());
    assert!(check_file(&settings).is_ok());
    let stdout = DecisionLogSettings { path: Some(STDOUT.into()), ..settings };
    assert!(check_file(&stdout).is_ok());
}
