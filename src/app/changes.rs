//! Temporary changes: the thread of their registry, and what the admin port does with them.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::active_rules::ActiveRules;
use crate::changes::{
    ActiveChanges, AppliedChange, ChangeAction, ChangeProblem, ChangeRegistry, ChangeRequest,
    ChangeTarget, CurrentChanges, EndedChange, ListedChange, MadeChange, NamedRule, RedisChanges,
    RulesNow, SharedChanges, TemporaryChange, instant_text,
};
use crate::descriptor::{Entry, RequestBounds, split_lease};
use crate::limit::TierNumbers;
use crate::limiter::Limiter;
use crate::rules::{Found, Rule, RuleSet};
use crate::server::ChangeError;
use crate::settings::Settings;
use crate::time::{Clock, Deadline, Micros, SystemClock};

/// Commands that wait for the thread. More callers wait to send theirs.
const COMMANDS_MAX: usize = 16;

/// The reason of a caller whose command has no result.
const THREAD_ENDED: &str =
    "the thread of temporary changes has ended; see the log, and restart weir";

/// Makes and ends changes, in the thread of the registry.
pub(super) struct ChangeCommands {
    commands: mpsc::Sender<ChangeCommand>,
    current: Arc<CurrentChanges>,
    /// Whether all instances that count in the same Redis have the same changes.
    is_shared: bool,
}

struct ChangeCommand {
    operation: ChangeOperation,
    /// Who sent it.
    by: String,
    reply: oneshot::Sender<Result<Value, ChangeProblem>>,
}

enum ChangeOperation {
    Make(ChangeRequest),
    End(String),
}

/// What the thread has.
struct ChangeThread {
    registry: ChangeRegistry,
    rules: Arc<ActiveRules>,
    clock: SystemClock,
    bounds: RequestBounds,
    is_shared: bool,
}

/// Starts the thread `weir-changes`. Returns the limiter that applies the changes. With the memory store,
/// they are those of this process.
///
/// # Errors
/// The thread cannot start.
pub(super) fn start(
    settings: &Settings,
    limiter: Limiter,
    rules: &Arc<ActiveRules>,
    clock: SystemClock,
) -> io::Result<(Limiter, ChangeCommands)> {
    let store = limiter.backend().modes().map(|modes| modes.store_arc());
    let shared =
        store.map(|store| -> Arc<dyn SharedChanges> { Arc::new(RedisChanges::new(store)) });
    let (current, is_shared) = (Arc::<CurrentChanges>::default(), shared.is_some());
    let registry = ChangeRegistry::new(current.clone(), shared);
    let bounds = settings.request;
    let worker = ChangeThread { registry, rules: rules.clone(), clock, bounds, is_shared };
    let (commands, received) = mpsc::channel(COMMANDS_MAX);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new()
        .name("weir-changes".into())
        .spawn(move || runtime.block_on(worker.run(received)))?;
    rules.use_changes(current.clone());
    let limiter = limiter.with_changes(current.clone());
    Ok((limiter, ChangeCommands { commands, current, is_shared }))
}

impl ChangeThread {
    /// Executes commands, and refreshes the changes periodically, until the process ends.
    async fn run(mut self, mut commands: mpsc::Receiver<ChangeCommand>) {
        self.refresh().await;
        let mut due = Deadline::after(self.registry.period());
        loop {
            // Commands do not delay a refresh, however many there are.
            let left = due.left();
            if left == Some(Duration::ZERO) {
                self.refresh().await;
                due = Deadline::after(self.registry.period());
                continue;
            }
            let next = match left {
                Some(left) => timeout(left, commands.recv()).await,
                None => Ok(commands.recv().await),
            };
            match next {
                Ok(Some(command)) => {
                    self.execute(command).await;
                    // A first change in memory begins the period.
                    if left.is_none() {
                        due = Deadline::after(self.registry.period());
                    }
                }
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }

    async fn refresh(&mut self) {
        let active = self.rules.snapshot_owned();
        let rules = RulesNow { version: active.version, rules: &active.rules };
        self.registry.refresh(self.clock.now(), rules).await;
        self.publish_new();
    }

    /// Publishes what a failed command has read, and compiles the changes again if the rules were replaced
    /// meanwhile.
    fn publish_new(&mut self) {
        let active = self.rules.snapshot_owned();
        self.registry.publish_new(RulesNow { version: active.version, rules: &active.rules });
    }

    async fn execute(&mut self, command: ChangeCommand) {
        let ChangeCommand { operation, by, reply } = command;
        let active = self.rules.snapshot_owned();
        let rules = RulesNow { version: active.version, rules: &active.rules };
        let (local, scope) = (self.clock.now(), scope(self.is_shared));
        let result = match operation {
            ChangeOperation::Make(request) => {
                let made = self.registry.make(request, &by, &self.bounds, local, rules).await;
                made.map(|MadeChange { listed, replaces, warning }| {
                    let warnings: Vec<&str> = warning.into_iter().collect();
                    json!({
                        "change": shown(&listed),
                        "replaces": replaces,
                        "scope": scope,
                        "warnings": warnings,
                    })
                })
            }
            ChangeOperation::End(id) => {
                let ended = self.registry.end(&id, &by, local, rules).await;
                ended.map(|ended| {
                    let change = ended
                        .map(|EndedChange { change, rule }| shown_change(&change, rule.as_ref()));
                    json!({ "id": id, "change": change, "scope": scope })
                })
            }
        };
        self.publish_new();
        // A caller that does not wait any more can list the changes.
        let _ = reply.send(result);
    }
}

impl ChangeCommands {
    /// `GET /changes`.
    pub(super) fn list(&self, local: Micros) -> Value {
        let (all, now) = (self.current.all(), self.current.now(local));
        let active = all.list().iter().filter(|listed| listed.change.is_active(now));
        json!({
            "scope": scope(self.is_shared),
            "changes": active.map(shown).collect::<Vec<Value>>(),
            "unreadable": *self.current.unreadable(),
            "error": self.current.last_error().as_deref(),
        })
    }

    /// `PATCH /changes`.
    pub(super) async fn make(&self, body: &[u8], by: &str) -> Result<Value, ChangeError> {
        let request = ChangeRequest::from_json(body).map_err(ChangeError::Invalid)?;
        self.send(ChangeOperation::Make(request), by).await
    }

    /// `DELETE /changes/ID`.
    pub(super) async fn end(&self, id: &str, by: &str) -> Result<Value, ChangeError> {
        self.send(ChangeOperation::End(id.to_owned()), by).await
    }

    async fn send(&self, operation: ChangeOperation, by: &str) -> Result<Value, ChangeError> {
        let (reply, replied) = oneshot::channel();
        let command = ChangeCommand { operation, by: by.to_owned(), reply };
        let ended = || ChangeError::Unavailable(THREAD_ENDED.to_owned());
        self.commands.send(command).await.map_err(|_| ended())?;
        replied.await.map_err(|_| ended())?.map_err(|problem| match problem {
            ChangeProblem::Invalid(why) => ChangeError::Invalid(why),
            ChangeProblem::Unknown(why) => ChangeError::NotFound(why),
            ChangeProblem::Conflict(why) => ChangeError::Conflict(why),
            ChangeProblem::Store(why) => ChangeError::Unavailable(why),
        })
    }
}

/// The changes of one descriptor and its rule, for the pages about them.
#[derive(Default)]
pub(super) struct DescriptorChanges {
    /// The changes, as JSON. Without their callers and reasons, which only `/changes` shows: `/explain` needs
    /// no token.
    pub(super) shown: Vec<Value>,
    /// The changes in words, one line each.
    pub(super) lines: Vec<String>,
    /// The end of a block, by the clock of changes.
    pub(super) blocked_until: Option<Micros>,
    /// Whether a bypass applies.
    pub(super) is_bypassed: bool,
    /// The numbers that replace those of the rule.
    pub(super) numbers: Option<Vec<TierNumbers>>,
}

impl DescriptorChanges {
    /// The changes at `local` that concern a descriptor with these entries.
    pub(super) fn of(
        current: Option<&Arc<CurrentChanges>>,
        rules: &RuleSet,
        domain: &str,
        entries: &[Entry<'_>],
        local: Micros,
    ) -> DescriptorChanges {
        // An entry with a lease is no part of the descriptor that was counted.
        let others = split_lease(entries).map(|(_, others)| others);
        let others =
            others.filter(|others| rule(rules, domain, others).is_some_and(|rule| rule.leases()));
        let entries = others.as_deref().unwrap_or(entries);
        let Some((active, now)) = current.and_then(|all| Some((all.get()?, all.now(local)))) else {
            return DescriptorChanges::default();
        };
        let rule = rule(rules, domain, entries);
        let mut changes = DescriptorChanges::concerning(&active, rule, domain, entries, now);
        match active.of(rule, domain, entries, now) {
            None => {}
            Some(AppliedChange::Block { until }) => changes.blocked_until = Some(until),
            Some(AppliedChange::Bypass) => changes.is_bypassed = true,
            Some(AppliedChange::Limit(numbers)) => changes.numbers = Some(numbers.to_vec()),
        }
        changes
    }

    /// The changes at `local` of `rule`.
    pub(super) fn of_rule(
        current: Option<&Arc<CurrentChanges>>,
        rule: &Rule,
        local: Micros,
    ) -> DescriptorChanges {
        let Some((active, now)) = current.and_then(|all| Some((all.get()?, all.now(local)))) else {
            return DescriptorChanges::default();
        };
        DescriptorChanges::concerning(&active, Some(rule), &rule.domain, &[], now)
    }

    fn concerning(
        active: &ActiveChanges,
        rule: Option<&Rule>,
        domain: &str,
        entries: &[Entry<'_>],
        now: Micros,
    ) -> DescriptorChanges {
        let mut changes = DescriptorChanges::default();
        for listed in active.concerning(rule, domain, entries, now) {
            let mut json = shown(listed);
            if let Some(fields) = json.as_object_mut() {
                fields.retain(|name, _| name != "by" && name != "reason");
            }
            changes.shown.push(json);
            changes.lines.push(line(listed));
        }
        changes
    }
}

/// The rule that a descriptor with these entries matches.
fn rule<'r>(rules: &'r RuleSet, domain: &str, entries: &[Entry<'_>]) -> Option<&'r Rule> {
    match rules.find(domain, entries) {
        Found::Rule(rule) => Some(rule),
        Found::NoRule | Found::UnknownDomain => None,
    }
}

/// The instances for which a change is made.
fn scope(is_shared: bool) -> &'static str {
    if is_shared { "all_instances" } else { "this_process" }
}

fn shown(listed: &ListedChange) -> Value {
    let mut json = shown_change(&listed.change, listed.rule.as_ref());
    json["problem"] = json!(listed.problem);
    json
}

/// A change as JSON. `rule` is its rule, if that is one of the active rules.
fn shown_change(change: &TemporaryChange, rule: Option<&NamedRule>) -> Value {
    let mut json = json!({
        "id": change.id,
        "domain": change.domain,
        "action": change.action.name(),
        "until": instant_text(change.until),
        "made_at": instant_text(change.made_at),
        "by": change.by,
        "reason": change.reason,
        "problem": null,
    });
    let target = match change.target {
        ChangeTarget::Rule(_) => "rule",
        ChangeTarget::Descriptor(_) => "descriptor",
    };
    json[target] = json!(change.target.selector());
    if let Some(NamedRule { name, selector }) = rule {
        json["rule"] = json!(&**name);
        if let Some(selector) = selector {
            json["selector"] = json!(selector);
        }
    }
    if let ChangeAction::Limit(numbers) = &change.action {
        let tier = |tier: &TierNumbers| match tier.burst {
            None => json!({ "requests": tier.requests }),
            Some(burst) => json!({ "requests": tier.requests, "burst": burst }),
        };
        json["limit"] = numbers.iter().map(tier).collect();
    }
    json
}

/// A change in words, as a line of an explanation.
fn line(listed: &ListedChange) -> String {
    let change = &listed.change;
    let mut line = format!("change  {}", change.action.name());
    if let ChangeAction::Limit(numbers) = &change.action {
        let numbers: Vec<String> = numbers.iter().map(|one| one.requests.to_string()).collect();
        line.push_str(&format!(" {}", numbers.join(", ")));
    }
    line.push_str(&format!(" until {}", instant_text(change.until)));
    line.push_str(&format!(" ({})", change.id));
    if let Some(problem) = &listed.problem {
        line.push_str(&format!("; without effect: {problem}"));
    }
    line
}
