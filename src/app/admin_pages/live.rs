//! The events of the live page: the status, the rates of rules, and the counters denied most.

use serde_json::{Value, json};

use super::{AdminPages, activity, rfc_3339, status};
use crate::app::activity::series;
use crate::telemetry::LiveSample;
use crate::time::{Clock, Micros};

/// The most rules of an event.
const RULES_MAX: usize = 100;

/// What the last event had.
#[derive(Default)]
pub(in crate::app) struct LastEvent {
    sample: Option<LiveSample>,
    /// The end of the last tick.
    until: Option<Micros>,
}

/// The next event, on one line. It takes as long as a page, so it needs a thread that may block.
pub(in crate::app) fn event(pages: &AdminPages, last: &mut LastEvent) -> String {
    let (now, active) = (pages.clock.now(), pages.rules.snapshot_owned());
    let decisions = &pages.recorder.decisions;
    let rates = decisions.sample(&mut last.sample, now, series(&active));
    let rules = rates.into_iter().take(RULES_MAX).filter_map(|(index, rates)| {
        let mut row = activity::names(active.rules.rules().get(index)?);
        row["rates"] = json!(rates);
        Some(row)
    });
    let rules: Vec<Value> = rules.collect();
    let until = decisions.activity(series(&active), |reader| reader.until());
    let point = until.filter(|_| until != last.until).map(rfc_3339);
    last.until = until;
    let event = json!({
        "status": status::page(pages),
        "rules": rules,
        "top": decisions.top.to_json(now),
        "point": point,
    });
    event.to_string()
}
