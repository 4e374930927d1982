//! Writes the decision log: a line of JSON per request, to a file or to standard output.
//!
//! A worker that decides a request writes its line into a bounded queue, and a thread writes the queue
//! to the file. So no decision waits for a disk: a line that has no room is dropped and counted. What
//! a line has is defined in [`decision_record`](crate::decision_record).

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;

use self::line_file::LineFile;
use self::line_queue::{LineQueue, Lines};
use crate::atomic_count::AtomicCount;
use crate::decision::{Code, Verdict};
use crate::decision_record::{DecisionRecord, ValueHash};
use crate::descriptor::Request;
use crate::key::KeySeed;
use crate::line_rate::LineRate;
use crate::outage_log::OutageLog;
use crate::rules::RuleSet;
use crate::sampling::{SampledShare, Sampler};
use crate::settings::{DecisionLogSettings, LoggedRequests, LoggedValues};
use crate::time::{Clock, Micros};

mod line_file;
mod line_queue;
#[cfg(test)]
mod tests;

/// The most bytes of lines that wait for the writer. It writes as many at the same time.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// The value of `log.decisions.path` for standard output. A file of this name is `./stdout`.
const STDOUT: &str = "stdout";

/// Records decided requests. The log ends when it is dropped.
pub struct DecisionRecorder {
    only_denied: bool,
    share: SampledShare,
    sampler: Sampler,
    rate: LineRate,
    hash: Option<ValueHash>,
    queue: Arc<LineQueue>,
    metrics: Arc<RecorderMetrics>,
}

/// The thread that writes the log.
pub struct RecordWriter {
    queue: Arc<LineQueue>,
    done: oneshot::Receiver<()>,
}

/// What happened to the lines.
#[derive(Debug, Default)]
pub struct RecorderMetrics {
    /// Lines that were written.
    pub written: AtomicCount,
    dropped: [AtomicCount; DropCause::ALL.len()],
}

/// Why a request that should have been logged was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCause {
    /// More lines per second than `log.decisions.max_per_second`.
    Rate,
    /// The writer is behind.
    Queue,
    /// A line of more than 1 MiB.
    Size,
    /// The file cannot be written.
    Write,
}

impl DropCause {
    /// Every cause.
    pub const ALL: [DropCause; 4] =
        [DropCause::Rate, DropCause::Queue, DropCause::Size, DropCause::Write];

    /// The cause in the metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropCause::Rate => "rate",
            DropCause::Queue => "queue",
            DropCause::Size => "size",
            DropCause::Write => "write",
        }
    }
}

impl RecorderMetrics {
    /// Lines that were dropped because of `cause`.
    pub fn dropped(&self, cause: DropCause) -> &AtomicCount {
        &self.dropped[cause as usize]
    }
}

/// The file of the decision log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("log.decisions.path: cannot write `{}`: {error}; {fix}", .path.display())]
pub struct RecorderError {
    path: PathBuf,
    error: String,
    fix: &'static str,
}

impl RecorderError {
    fn new(path: &Path, error: impl Display, fix: &'static str) -> RecorderError {
        RecorderError { path: path.to_owned(), error: error.to_string(), fix }
    }
}

/// Checks that the file of `settings` could be opened, without changes to it.
///
/// # Errors
///
/// Its folder does not exist, or the path is that of something else than a file.
pub fn check_file(settings: &DecisionLogSettings) -> Result<(), RecorderError> {
    match &settings.path {
        Some(path) if *path != Path::new(STDOUT) => line_file::check(path),
        _ => Ok(()),
    }
}

impl DecisionRecorder {
    /// Opens the log of `settings` and starts the thread that writes it. Values are hashed with `seed`.
    /// `None` without a path.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or the thread cannot be started.
    pub fn start(
        settings: &DecisionLogSettings,
        seed: KeySeed,
        clock: impl Clock,
    ) -> Result<Option<(DecisionRecorder, RecordWriter)>, RecorderError> {
        let Some(path) = &settings.path else { return Ok(None) };
        let output = LineOutput::open(path, settings.max_bytes)?;
        let queue = Arc::new(LineQueue::new(QUEUE_BYTES_MAX));
        let recorder = DecisionRecorder::new(settings, seed, clock.now(), queue.clone());
        let (lines, metrics) = (queue.clone(), recorder.metrics.clone());
        let (ended, done) = oneshot::channel();
        let thread = thread::Builder::new().name("weir-decisions".into());
        let started = thread.spawn(move || {
            write_lines(&lines, output, &metrics, &clock);
            let _ = ended.send(());
        });
        started.map_err(|error| RecorderError::new(path, error, "raise the limit of threads"))?;
        Ok(Some((recorder, RecordWriter { queue, done })))
    }

    /// A recorder into `queue`. `now` is the seed of its random numbers.
    fn new(
        settings: &DecisionLogSettings,
        seed: KeySeed,
        now: Micros,
        queue: Arc<LineQueue>,
    ) -> DecisionRecorder {
        DecisionRecorder {
            only_denied: settings.only == LoggedRequests::Denied,
            share: SampledShare::new(settings.sample),
            sampler: Sampler::new(now.0),
            rate: LineRate::new(settings.max_per_second),
            hash: (settings.values == LoggedValues::Hashed).then(|| ValueHash::new(seed)),
            queue,
            metrics: Arc::default(),
        }
    }

    /// Records a request that `rules` decided as of `at` by the local clock. Never waits for the file.
    pub fn record(&self, rules: &RuleSet, request: &Request<'_>, verdict: &Verdict, at: Micros) {
        let is_wanted = !self.only_denied || verdict.code == Code::OverLimit;
        if !is_wanted || !self.sampler.takes(self.share) {
            return;
        }
        if !self.rate.admits(at) {
            self.metrics.dropped(DropCause::Rate).add();
            return;
        }
        let record = DecisionRecord::new(rules, request, verdict, at, self.hash.as_ref());
        match record.to_line() {
            None => self.metrics.dropped(DropCause::Size).add(),
            Some(line) if self.queue.push(&line) => {}
            Some(_) => self.metrics.dropped(DropCause::Queue).add(),
        }
    }

    /// What happened to the lines.
    pub fn metrics(&self) -> &RecorderMetrics {
        &self.metrics
    }
}

impl Drop for DecisionRecorder {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl RecordWriter {
    /// Writes the lines that wait, and ends the log. Later lines are dropped.
    pub async fn end(self) {
        self.queue.close();
        // An error is a panic, which was logged.
        let _ = self.done.await;
    }
}

/// Where the lines go.
enum LineOutput {
    Stdout,
    File(LineFile),
}

impl LineOutput {
    fn open(path: &Path, max_bytes: u64) -> Result<LineOutput, RecorderError> {
        if path == Path::new(STDOUT) {
            return Ok(LineOutput::Stdout);
        }
        Ok(LineOutput::File(LineFile::open(path, max_bytes)?))
    }

    /// Writes whole lines. Returns the number of bytes that were written, and the error that prevented
    /// the rest.
    fn write(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        match self {
            LineOutput::Stdout => {
                let mut stdout = io::stdout().lock();
                let result = stdout.write_all(lines).and_then(|()| stdout.flush());
                (if result.is_ok() { lines.len() } else { 0 }, result)
            }
            LineOutput::File(file) => file.write(lines),
        }
    }
}

/// Writes the lines of the queue until it is closed and empty. While the output fails, lines are
/// dropped.
fn write_lines(
    queue: &LineQueue,
    mut output: LineOutput,
    metrics: &RecorderMetrics,
    clock: &impl Clock,
) {
    let mut lines = Lines::with_capacity(QUEUE_BYTES_MAX);
    let mut log = OutageLog::default();
    while queue.take(&mut lines) {
        let (bytes, result) = output.write(lines.bytes());
        let written = count_lines(&lines.bytes()[..bytes]);
        metrics.written.add_many(written);
        metrics.dropped(DropCause::Write).add_many(lines.count() - written);
        match result {
            Ok(()) if log.up() => tracing::info!("decision log written again"),
            Ok(()) => {}
            Err(error) if log.down(&error.to_string(), clock.now()) => {
                tracing::warn!(%error, "decision log not written; check log.decisions.path");
            }
            Err(_) => {}
        }
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}
