//! The history of one run: what was requested, what Redis applied, and how it reads as text.

use std::fmt::Write;

use super::recording_store::RecordedCall;
use super::rules;
use super::schedule::Schedule;
use crate::key::CounterKey;
use crate::step::{Lease, State, Step};
use crate::store::StoreError;
use crate::testing::network::Conditions;
use crate::testing::simulated_node::{Applied, SimulatedNode};
use crate::testing::simulated_store::LostCall;
use crate::time::Micros;

/// The records of one run. All instants are by the clock of Redis.
pub(super) struct History {
    /// The key of each counter.
    pub(super) keys: Vec<CounterKey>,
    pub(super) requests: Vec<RequestRecord>,
    /// What the nodes did, in order.
    pub(super) applied: Vec<Applied>,
    /// What the instances sent, one instance after another.
    pub(super) calls: Vec<RecordedCall>,
    /// The calls without an outcome, and the detached ones that were possibly not applied.
    pub(super) lost: Vec<LostCall>,
    pub(super) disturbances: Vec<(Micros, Disturbance)>,
    /// What each instance had at its end: calls in flight, and replicas.
    pub(super) left_over: Vec<(usize, u64)>,
    /// The largest error of an instance's estimate of a node's clock.
    pub(super) clock_error: Micros,
    pub(super) end: Micros,
    /// The nodes at the end.
    pub(super) nodes: Vec<SimulatedNode>,
}

/// One descriptor of one request.
#[derive(Clone, Debug)]
pub(super) struct RequestRecord {
    pub(super) instance: usize,
    pub(super) counter: usize,
    pub(super) hits: i64,
    pub(super) kind: RequestKind,
    /// When the request arrived, and when its response was ready.
    pub(super) begun: Micros,
    pub(super) end: Micros,
    pub(super) decided: Decided,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// It takes hits or gives them back.
    Hits,
    /// It closes the lease of the request with this index.
    Closes(usize),
}

/// The decision about one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided {
    Pending,
    Passed,
    Denied,
    /// The counter allowed the hits, and they were given back because another one denied.
    Freed,
    /// There was no decision.
    Failed(StoreError),
}

/// An event that is neither a request nor a step.
#[derive(Clone, Debug)]
pub(super) enum Disturbance {
    Reload(usize),
    Delete(usize),
    /// The conditions on the link to a node.
    Conditions(usize, Conditions),
    Down(usize, bool),
    Stalled(usize, bool),
    Drain(usize),
    Drained(usize),
}

impl RequestRecord {
    /// The hits that passed.
    pub(super) fn passed(&self) -> i64 {
        match (self.kind, self.decided) {
            (RequestKind::Hits, Decided::Passed) => self.hits.max(0),
            _ => 0,
        }
    }

    /// The hits that were given back on request, or because another counter denied.
    pub(super) fn returned(&self) -> i64 {
        match (self.kind, self.decided) {
            (RequestKind::Hits, Decided::Passed) => (-self.hits).max(0),
            _ => 0,
        }
    }
}

impl History {
    /// The number of records.
    pub(super) fn len(&self) -> usize {
        self.requests.len() + self.applied.len() + self.disturbances.len()
    }

    /// The state of a counter at the end.
    pub(super) fn state(&self, key: &CounterKey) -> Option<State> {
        self.nodes.iter().find_map(|node| node.state(key))
    }
}

/// The schedule and its history, one event per line.
pub(super) fn text(schedule: &Schedule, history: &History) -> String {
    let mut text = String::new();
    let Schedule { seed, offsets, nodes, conditions, timeout, period, .. } = schedule;
    let Schedule { counters, variant, .. } = schedule;
    let _ = writeln!(
        text,
        "seed {seed}: {} instances, {nodes} nodes, {} ms to Redis, {} ms of jitter, {} % lost, \
         timeout {timeout} ms, job every {period} ms, clocks wrong by up to {} us",
        offsets.len(),
        conditions.latency,
        conditions.jitter,
        conditions.loss_percent,
        history.clock_error.0,
    );
    for (index, counter) in counters.iter().enumerate() {
        let _ = writeln!(text, "  c{index}: {}", described(*variant, counter));
    }
    let mut lines: Vec<(Micros, String)> = Vec::new();
    for request in &history.requests {
        let RequestRecord { instance, counter, hits, kind, begun, end, decided, .. } = request;
        let closes = match kind {
            RequestKind::Hits => String::new(),
            RequestKind::Closes(_) => " closing a lease".to_owned(),
        };
        let took = end.saturating_sub(*begun).0 / 1_000;
        lines.push((
            *begun,
            format!("i{instance} c{counter} {hits:+}{closes}: {decided:?} after {took} ms"),
        ));
    }
    for one in &history.applied {
        let counter = history.keys.iter().position(|key| *key == one.key).unwrap_or(99);
        let what = one.step.as_ref().map_or("deleted".to_owned(), |step| stepped(step, one));
        lines.push((one.at, format!("     Redis from i{} c{counter}: {what}", one.instance)));
    }
    for (at, disturbance) in &history.disturbances {
        let disturbance = match disturbance {
            Disturbance::Reload(variant) => {
                format!("reload: {} rules {variant}", rules::theme(*variant))
            }
            Disturbance::Delete(instance) => format!("i{instance} deletes a counter"),
            Disturbance::Conditions(node, conditions) => {
                format!("{} ms to node {node}", conditions.latency)
            }
            Disturbance::Down(node, true) => format!("no connections to node {node}"),
            Disturbance::Down(node, false) => format!("connections to node {node} again"),
            Disturbance::Stalled(node, true) => format!("node {node} stalls"),
            Disturbance::Stalled(node, false) => format!("node {node} answers again"),
            Disturbance::Drain(instance) => format!("i{instance} is to end"),
            Disturbance::Drained(instance) => format!("i{instance} has ended"),
        };
        lines.push((*at, disturbance));
    }
    lines.sort_by_key(|(at, _)| *at);
    for (at, line) in lines {
        let after = at.0.saturating_sub(schedule.epoch);
        let _ = writeln!(text, "  {:>6} ms  {line}", after / 1_000);
    }
    text
}

fn stepped(step: &Step, one: &Applied) -> String {
    let lease = match step.lease {
        None => "",
        Some(Lease::Open { .. }) => " open",
        Some(Lease::Close(_)) => " close",
    };
    let verdict = if one.allowed { "ok" } else { "over limit" };
    format!("{:+}{lease} {verdict}", step.hits)
}

/// The mode and the limit of a counter.
fn described(variant: usize, counter: &rules::Counter) -> String {
    use crate::descriptor::Entry;
    let rules = rules::rules(variant);
    let name = counter.name();
    let entries = [Entry { key: &name, value: "" }];
    let crate::rules::Found::Rule(rule) = rules.find(counter.domain(), &entries) else {
        return name;
    };
    format!("{name} {:?} {:?} {:?}", counter.domain(), rule.mode, rule.limit)
}
