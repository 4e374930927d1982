//! The transition log: lines about what begins and ends, such as a fallback or an open breaker.
//!
//! A thread compares the counters once a second, so that no request ever logs, and the number of
//! lines is bounded whatever happens.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::active_rules::ActiveRules;
use crate::limiter::Limiter;
use crate::store::StoreError;
use crate::store::guard::BreakerState;
use crate::time::{Clock, Micros, SystemClock};

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// A fallback has ended when nothing fell back for so long.
const QUIET: Micros = Micros::from_secs(5);

/// Lines per look; of more events only their number is told.
const LINES_MAX: usize = 20;

/// Stops its thread when dropped.
#[derive(Debug)]
pub(super) struct TransitionLog {
    _alive: mpsc::Sender<()>,
}

impl TransitionLog {
    /// Starts to write, if there is a Redis: where counters are in memory alone, nothing that it
    /// tells of ever happens.
    pub(super) fn start(
        limiter: Arc<Limiter>,
        rules: Arc<ActiveRules>,
        clock: SystemClock,
    ) -> io::Result<Option<TransitionLog>> {
        if limiter.backend().redis().is_none() {
            return Ok(None);
        }
        let (alive, ended) = mpsc::channel();
        thread::Builder::new().name("weir-journal".into()).spawn(move || {
            let mut notes = TransitionLogState::default();
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let events = notes.compare(clock.now(), &seen(&limiter, &rules));
                write(&events);
            }
        })?;
        Ok(Some(TransitionLog { _alive: alive }))
    }
}

/// What a look saw.
#[derive(Debug, Default)]
struct Seen {
    rules: Vec<RuleSeen>,
    nodes: Vec<NodeSeen>,
}

#[derive(Clone, Debug)]
struct RuleSeen {
    domain: Arc<str>,
    rule: Arc<str>,
    /// Decisions by the fallback so far, by cause.
    causes: [u64; StoreError::ALL.len()],
}

#[derive(Clone, Debug)]
struct NodeSeen {
    name: String,
    closed: bool,
    opened: u64,
}

/// What a line is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    FallbackBegan { domain: Arc<str>, rule: Arc<str>, cause: StoreError },
    FallbackEnded { domain: Arc<str>, rule: Arc<str>, decisions: u64, seconds: u64 },
    BreakerOpened { node: String },
    BreakerClosed { node: String },
}

/// What the looks before saw.
#[derive(Debug, Default)]
struct TransitionLogState {
    rules: HashMap<(Arc<str>, Arc<str>), RuleNote>,
    nodes: HashMap<String, (bool, u64)>,
}

#[derive(Debug, Default)]
struct RuleNote {
    causes: [u64; StoreError::ALL.len()],
    fallback: Option<FallbackPeriod>,
}

/// A rule that runs on its fallback.
#[derive(Debug)]
struct FallbackPeriod {
    since: Micros,
    last: Micros,
    decisions: u64,
}

fn seen(limiter: &Limiter, rules: &ActiveRules) -> Seen {
    let now = rules.snapshot();
    let rules = now.metrics.all().iter().map(|series| RuleSeen {
        domain: series.domain.clone(),
        rule: series.selector.clone(),
        causes: series.causes(),
    });
    let nodes = limiter.backend().redis().map(|guard| {
        let parts = guard.store().nodes().into_iter();
        parts.map(|(part, name)| {
            let health = guard.health(part);
            let closed = health.breaker == BreakerState::Closed;
            NodeSeen { name, closed, opened: health.opened }
        })
    });
    Seen { rules: rules.collect(), nodes: nodes.into_iter().flatten().collect() }
}

impl TransitionLogState {
    fn compare(&mut self, now: Micros, seen: &Seen) -> Vec<Event> {
        let mut events = Vec::new();
        for node in &seen.nodes {
            self.node(node, &mut events);
        }
        self.nodes.retain(|name, _| seen.nodes.iter().any(|node| node.name == *name));
        // Rules that are gone after a reload are forgotten with their counters.
        let mut before = std::mem::take(&mut self.rules);
        for rule in &seen.rules {
            let name = (rule.domain.clone(), rule.rule.clone());
            let mut note = before.remove(&name).unwrap_or_default();
            note.compare(now, rule, &mut events);
            if note.causes.iter().any(|count| *count > 0) {
                self.rules.insert(name, note);
            }
        }
        events
    }

    fn node(&mut self, node: &NodeSeen, events: &mut Vec<Event>) {
        let before = self.nodes.insert(node.name.clone(), (node.closed, node.opened));
        let (was_closed, opened) = before.unwrap_or((true, 0));
        let name = || node.name.clone();
        if was_closed && node.opened > opened {
            events.push(Event::BreakerOpened { node: name() });
        }
        if node.closed && (!was_closed || node.opened > opened) {
            events.push(Event::BreakerClosed { node: name() });
        }
    }
}

impl RuleNote {
    fn compare(&mut self, now: Micros, seen: &RuleSeen, events: &mut Vec<Event>) {
        let grown = |at: usize| seen.causes[at].saturating_sub(self.causes[at]);
        let most = (0..StoreError::ALL.len()).max_by_key(|at| grown(*at)).unwrap_or_default();
        let more: u64 = (0..StoreError::ALL.len()).map(grown).sum();
        let grown_most = grown(most);
        self.causes = seen.causes;
        let (domain, rule) = (seen.domain.clone(), seen.rule.clone());
        match &mut self.fallback {
            None if grown_most > 0 => {
                self.fallback = Some(FallbackPeriod { since: now, last: now, decisions: more });
                let cause = StoreError::ALL[most];
                events.push(Event::FallbackBegan { domain, rule, cause });
            }
            Some(fallback) if more > 0 => {
                fallback.last = now;
                fallback.decisions += more;
            }
            Some(fallback) if now.saturating_sub(fallback.last) >= QUIET => {
                let seconds = fallback.last.saturating_sub(fallback.since).ceil_secs();
                let decisions = fallback.decisions;
                self.fallback = None;
                events.push(Event::FallbackEnded { domain, rule, decisions, seconds });
            }
            _ => {}
        }
    }
}

fn write(events: &[Event]) {
    for event in events.iter().take(LINES_MAX) {
        match event {
            Event::FallbackBegan { domain, rule, cause } => {
                let cause = cause.word();
                tracing::warn!(%domain, %rule, cause, "a rule runs on its fallback");
            }
            Event::FallbackEnded { domain, rule, decisions, seconds } => {
                tracing::info!(%domain, %rule, decisions, seconds, "a rule counts again");
            }
            Event::BreakerOpened { node } => {
                tracing::warn!(%node, "the breaker opened: this node is left alone for a moment");
            }
            Event::BreakerClosed { node } => {
                tracing::info!(%node, "the breaker closed: this node answers again");
            }
        }
    }
    let untold = events.len().saturating_sub(LINES_MAX);
    if untold > 0 {
        tracing::warn!(untold, "more rules or nodes changed at the same time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timeouts of one rule, seen at a second.
    fn look(notes: &mut TransitionLogState, second: u64, timeouts: u64) -> Vec<Event> {
        let mut causes = [0; StoreError::ALL.len()];
        causes[1] = timeouts;
        let rule = RuleSeen { domain: "d".into(), rule: "k".into(), causes };
        notes.compare(Micros::from_secs(second), &Seen { rules: vec![rule], nodes: vec![] })
    }

    #[test]
    fn a_fallback_is_told_when_it_begins_and_when_it_has_been_quiet() {
        let mut notes = TransitionLogState::default();
        let (domain, rule): (Arc<str>, Arc<str>) = ("d".into(), "k".into());
        assert_eq!(look(&mut notes, 0, 0), []);
        let cause = StoreError::Timeout;
        let began = Event::FallbackBegan { domain: domain.clone(), rule: rule.clone(), cause };
        assert_eq!(look(&mut notes, 1, 7), std::slice::from_ref(&began));
        for (second, timeouts) in [(2, 500), (3, 500), (6, 501), (7, 501), (10, 501)] {
            assert_eq!(look(&mut notes, second, timeouts), [], "second {second}");
        }
        let ended = Event::FallbackEnded { domain, rule, decisions: 501, seconds: 5 };
        assert_eq!(look(&mut notes, 11, 501), [ended]);
        assert_eq!(look(&mut notes, 12, 501), []);
        assert_eq!(look(&mut notes, 13, 502), [began]);
    }

    #[test]
    fn a_breaker_is_told_when_it_opens_and_when_it_closes() {
        let mut notes = TransitionLogState::default();
        let mut look = |closed, opened| {
            let node = NodeSeen { name: "n".into(), closed, opened };
            let seen = Seen { rules: vec![], nodes: vec![node] };
            notes.compare(Micros::ZERO, &seen).len()
        };
        let opened_and_closed = 2;
        assert_eq!(look(true, 0), 0);
        assert_eq!(look(false, 1), 1, "opened");
        assert_eq!(look(false, 1), 0);
        assert_eq!(look(true, 1), 1, "closed");
        assert_eq!(look(true, 3), opened_and_closed, "between two looks");
    }
}
