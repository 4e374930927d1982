//! Replays decide a recording by two rule sets on virtual time, and compare the verdicts.
//!
//! A recording passes through these parts in order:
//!
//! 1. `line_reader` splits it into bounded lines.
//! 2. `call_reader` reads the lines into batches of calls, in the form of the decision log or of
//!    Envoy's access log, and sets the instant of each call. `canonical_line` reads nearly all lines of the
//!    decision log, without an allocation and without a parser of JSON.
//! 3. `side` decides a batch by one rule set, with its own counters in memory. The limiter is that of
//!    the service, so the verdicts are too. Most calls need codes only, and no responses. Each rule set has
//!    a thread, which owns its counters, so that they need no locks.
//! 4. `comparison` adds the verdicts up, in bounded memory.
//! 5. `report` has the result, and `report_text` writes it.
//!
//! **Invariant:** each rule set decides all calls in the order of the recording, as of the recorded
//! instants. So the report does not depend on the threads.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

use crate::limit::OnError;
use crate::plans::Plans;
use crate::rules::RuleSet;
use crate::settings::ResponseSettings;

mod call_batch;
mod call_reader;
mod canonical_line;
mod comparison;
mod differences;
mod envoy_log;
mod lease_names;
mod line_call;
mod line_problem;
mod line_reader;
mod report;
mod report_text;
mod rule_rows;
mod side;
#[cfg(test)]
mod tests;

pub use call_reader::{LineForm, LineTotals};
pub use differences::{DescriptorDifference, Difference};
pub use line_problem::BadLine;
pub use report::{CallTotals, CounterTotals, RecordedTotals, ReplayReport, RuleReport, RuleTotals};

use call_batch::CallBatch;
use call_reader::CallReader;
use comparison::Comparison;
use rule_rows::RuleRows;
use side::{ReplaySide, SideVerdicts};

/// Batches that are read ahead of the slower rule set.
const BATCHES_AHEAD: usize = 8;

/// How a recording is replayed.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The form of its lines.
    pub form: LineForm,
    /// The domain whose calls are decided; `None` for all.
    pub domain: Option<String>,
    /// The most rules and the most descriptors of the report.
    pub top: usize,
    /// The modes of responses. Headers cost time and change nothing.
    pub response: ResponseSettings,
    /// What decides when the counters in memory are full.
    pub on_error: OnError,
    /// The most counters of each rule set.
    pub max_counters: usize,
}

/// One of the two rule sets of a replay.
#[derive(Clone)]
pub struct ReplayRules<'r> {
    /// The rules.
    pub rules: &'r RuleSet,
    /// The plans of rules with `limit_from`, which stay the same for the whole replay. `None`: these rules
    /// decide by their own numbers.
    pub plans: Option<Arc<Plans>>,
}

impl<'r> From<&'r RuleSet> for ReplayRules<'r> {
    /// The rules without plans.
    fn from(rules: &'r RuleSet) -> ReplayRules<'r> {
        ReplayRules { rules, plans: None }
    }
}

/// Decides the calls of `input` by the rules `old` and by the rules `new`.
///
/// # Errors
///
/// The error of the input, or of the operating system when a thread does not start.
pub fn replay<'r>(
    input: impl Read,
    old: impl Into<ReplayRules<'r>>,
    new: impl Into<ReplayRules<'r>>,
    options: &ReplayOptions,
) -> io::Result<ReplayReport> {
    let (old, new) = (old.into(), new.into());
    let (rows, [rows_of_old, rows_of_new]) = RuleRows::new([old.rules, new.rules]);
    let mut old = ReplaySide::new(old, rows_of_old, options);
    let mut new = ReplaySide::new(new, rows_of_new, options);
    let mut reader = CallReader::new(input, options.form, options.domain.as_deref());
    let mut comparison = Comparison::new(rows.len());
    thread::scope(|scope| {
        let old = SideThread::start(scope, "replay-old", &mut old)?;
        let new = SideThread::start(scope, "replay-new", &mut new)?;
        compare(&mut reader, &old, &new, &mut comparison)
    })?;
    let (lines, span) = reader.into_totals();
    let mut rules = comparison.rules(&rows);
    let rules_used = rules.len();
    rules.truncate(options.top);
    let descriptors = comparison.descriptors();
    Ok(ReplayReport {
        calls: comparison.calls(),
        recorded: comparison.recorded(),
        first_at: span.map(|(first, _)| first.0),
        last_at: span.map(|(_, last)| last.0),
        lines,
        old_counters: old.totals(),
        new_counters: new.totals(),
        rules_used,
        rules,
        descriptors_tracked: descriptors.len(),
        descriptors: descriptors.top(options.top),
        descriptors_untracked: descriptors.untracked(),
    })
}

/// A thread that decides batches by one rule set, in the order in which they are sent. It ends when this
/// is dropped.
struct SideThread {
    batches: SyncSender<Arc<CallBatch>>,
    verdicts: Receiver<SideVerdicts>,
}

impl SideThread {
    fn start<'s>(
        scope: &'s Scope<'s, '_>,
        name: &str,
        side: &'s mut ReplaySide<'_>,
    ) -> io::Result<SideThread> {
        let (batches, received) = sync_channel::<Arc<CallBatch>>(BATCHES_AHEAD);
        // As many verdicts as batches, so that neither this thread nor the reader waits for the other
        // one while the other one waits for it.
        let (decided, verdicts) = sync_channel(BATCHES_AHEAD);
        thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, move || {
            for batch in received {
                let verdicts = side.decide(&batch);
                // Dropped before the verdicts are sent, so that the reader can use its buffers again.
                drop(batch);
                if decided.send(verdicts).is_err() {
                    return;
                }
            }
        })?;
        Ok(SideThread { batches, verdicts })
    }

    /// Sends a batch. At most [`BATCHES_AHEAD`] batches may be without verdicts.
    fn send(&self, batch: &Arc<CallBatch>) -> io::Result<()> {
        self.batches.send(Arc::clone(batch)).map_err(io::Error::other)
    }

    /// The verdicts of the first batch that has none yet.
    fn verdicts(&self) -> io::Result<SideVerdicts> {
        self.verdicts.recv().map_err(io::Error::other)
    }
}

/// Sends all batches of `reader` to both threads, and compares their verdicts.
fn compare(
    reader: &mut CallReader<'_, impl Read>,
    old: &SideThread,
    new: &SideThread,
    comparison: &mut Comparison,
) -> io::Result<()> {
    let mut under_way: VecDeque<Arc<CallBatch>> = VecDeque::new();
    let mut spare: Option<CallBatch> = None;
    loop {
        let mut batch = spare.take().unwrap_or_default();
        let has_calls = reader.fill(&mut batch)?;
        if has_calls {
            let batch = Arc::new(batch);
            old.send(&batch)?;
            new.send(&batch)?;
            under_way.push_back(batch);
        }
        while under_way.len() >= BATCHES_AHEAD || !has_calls {
            let Some(batch) = under_way.pop_front() else { return Ok(()) };
            comparison.add(&batch, &old.verdicts()?, &new.verdicts()?);
            spare = Arc::try_unwrap(batch).ok();
        }
    }
}
