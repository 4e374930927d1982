//! The registry: makes, ends and reads changes, and replaces the current ones.
//!
//! One task owns it. With shared changes, the registry of each instance reads all of them periodically.
//! While the store is unreachable, the changes that were read last stay, each until its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::active::{ActiveChanges, ListedChange};
use super::audit_log;
use super::change::TemporaryChange;
use super::current::CurrentChanges;
use super::plan_warning::plan_warning;
use super::problem::ChangeProblem;
use super::request::ChangeRequest;
use super::rule_names::NamedRule;
use super::shared::{SharedChanges, SharedChangesError, StoredChanges};
use super::{CHANGES_MAX, POLL_PERIOD};
use crate::descriptor::RequestBounds;
use crate::escape::{excerpt, one_line};
use crate::key::{KeyBuilder, KeySeed};
use crate::outage_log::OutageLog;
use crate::rules::RuleSet;
use crate::store_error::StoreError;
use crate::time::Micros;

/// Period before the first successful read, so that a new instance has the changes as soon as it reaches
/// the store.
const FIRST_PERIOD: Duration = Duration::from_millis(50);

/// Reads in this period: for 5 s. Until then, a store without a connection is no error.
const FIRST_READS: u32 = 100;

/// Period after many errors that a retry does not correct, such as a missing permission.
const REFUSED_PERIOD: Duration = Duration::from_secs(10);

/// Such errors in a row before this period. Fewer may be those of a server that starts.
const REFUSALS: u32 = 20;

/// Longest name of a caller, in characters.
const BY_CHARS_MAX: usize = 100;

/// Longest id in a message, in characters.
const ID_CHARS_MAX: usize = 40;

/// The active rules.
#[derive(Clone, Copy, Debug)]
pub struct RulesNow<'r> {
    /// The number of rule sets before.
    pub version: u64,
    /// The rules.
    pub rules: &'r RuleSet,
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeChange {
    /// The change.
    pub listed: ListedChange,
    /// The id of the change that it replaces.
    pub replaces: Option<String>,
    /// An effect that its caller may not expect.
    pub warning: Option<&'static str>,
}

/// A change that a caller ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedChange {
    /// The change.
    pub change: TemporaryChange,
    /// Its rule, if the target is one of the active rules.
    pub rule: Option<NamedRule>,
}

/// The changes of this process, and the shared ones as last read.
pub struct ChangeRegistry {
    shared: Option<Arc<dyn SharedChanges>>,
    current: Arc<CurrentChanges>,
    /// The seed of ids, and the number of those that were assigned.
    ids: (KeySeed, u64),
    /// All changes by id. Those that are over stay until they are removed from the store.
    changes: BTreeMap<String, TemporaryChange>,
    /// Changes in the store that a later one replaces.
    replaced: BTreeSet<String>,
    /// Stored changes that this version cannot read.
    unreadable: BTreeSet<String>,
    /// The stored changes as last read. `None` if they have changed since.
    fields: Option<StoredChanges>,
    /// The version of the rules for which the current changes were compiled.
    compiled_for: Option<u64>,
    /// Whether the changes differ from the current ones.
    is_dirty: bool,
    has_read: bool,
    reads: u32,
    refusals: u32,
    outage: OutageLog,
    unreadable_log: OutageLog,
}

impl ChangeRegistry {
    /// A registry without changes, which replaces those in `current`. Without `shared`, changes are
    /// those of this process only.
    pub fn new(
        current: Arc<CurrentChanges>,
        shared: Option<Arc<dyn SharedChanges>>,
    ) -> ChangeRegistry {
        ChangeRegistry {
            shared,
            current,
            ids: (KeySeed::random(), 0),
            changes: BTreeMap::new(),
            replaced: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            fields: None,
            compiled_for: None,
            is_dirty: false,
            has_read: false,
            reads: 0,
            refusals: 0,
            outage: OutageLog::default(),
            unreadable_log: OutageLog::default(),
        }
    }

    /// The time until the next [`ChangeRegistry::refresh`]; `None` if nothing can become due.
    pub fn period(&self) -> Option<Duration> {
        if self.shared.is_none() {
            return (!self.changes.is_empty()).then_some(POLL_PERIOD);
        }
        Some(match self.has_read {
            _ if self.refusals > REFUSALS => REFUSED_PERIOD,
            false if self.reads < FIRST_READS => FIRST_PERIOD,
            _ => POLL_PERIOD,
        })
    }

    /// Reads the shared changes, removes those that are over, and compiles all for new rules. `local` is
    /// by the local clock.
    pub async fn refresh(&mut self, local: Micros, rules: RulesNow<'_>) {
        match self.read(local).await {
            Ok(()) => {
                self.record_success();
                self.remove_over(self.current.now(local)).await;
            }
            Err(error) => self.record_failure(error, local),
        }
        self.publish_new(rules);
    }

    /// Replaces the current changes if there are others, or if `rules` are new.
    pub fn publish_new(&mut self, rules: RulesNow<'_>) {
        let has_new_rules = self.compiled_for != Some(rules.version);
        if self.is_dirty || has_new_rules && !self.changes.is_empty() {
            self.publish(rules);
        }
    }

    /// Makes a change. It is active in this process when the call returns, and in all instances that
    /// share changes after their next read.
    ///
    /// # Errors
    ///
    /// The reason why it was not made. After [`ChangeProblem::Store`], the store possibly has it.
    pub async fn make(
        &mut self,
        request: ChangeRequest,
        by: &str,
        bounds: &RequestBounds,
        local: Micros,
        rules: RulesNow<'_>,
    ) -> Result<MadeChange, ChangeProblem> {
        self.read(local).await?;
        let (id, now, by) = (self.next_id(), self.current.now(local), excerpt(by, BY_CHARS_MAX));
        let mut change = request.into_change(id, by, rules.rules, bounds, now)?;
        let same: Vec<&TemporaryChange> =
            self.changes.values().filter(|known| known.place() == change.place()).collect();
        // The clock of the store may have moved back. The order of two changes must not.
        let later = same.iter().map(|known| known.made_at.saturating_add(Micros(1))).max();
        change.made_at = change.made_at.max(later.unwrap_or_default());
        let replaces = same.iter().find(|known| known.is_active(now)).map(|one| one.id.clone());
        let same: Vec<String> = same.iter().map(|known| known.id.clone()).collect();
        let active = self.changes.values().filter(|known| known.is_active(now)).count();
        if replaces.is_none() && active >= CHANGES_MAX {
            let text = format!("there are {active} changes, the most; end some, see GET /changes");
            return Err(ChangeProblem::Conflict(text));
        }
        if let Some(shared) = self.shared.clone() {
            self.fields = None;
            let written = shared.write(&change.id, change.to_json().as_bytes()).await;
            written.inspect_err(|error| {
                let named = NamedRule::of(&change, rules.rules);
                audit_log::not_made(&change, named.as_ref(), error);
            })?;
            self.replaced.extend(same.iter().cloned());
        }
        self.changes.retain(|id, _| !same.contains(id));
        let id = change.id.clone();
        self.changes.insert(id.clone(), change);
        self.publish(rules);
        let listed = self.listed(&id).expect("the change was published a moment ago");
        audit_log::made(&listed.change, listed.rule.as_ref(), replaces.as_deref());
        self.remove_replaced().await;
        let warning = plan_warning(&listed.change, rules.rules);
        Ok(MadeChange { listed, replaces, warning })
    }

    /// Ends the change `id`. `by` is the caller. Returns the change with its rule, unless it was an
    /// unreadable one.
    ///
    /// # Errors
    ///
    /// The reason why it was not ended.
    pub async fn end(
        &mut self,
        id: &str,
        by: &str,
        local: Micros,
        rules: RulesNow<'_>,
    ) -> Result<Option<EndedChange>, ChangeProblem> {
        self.read(local).await?;
        let unknown = || {
            let shown = excerpt(id, ID_CHARS_MAX);
            ChangeProblem::Unknown(format!("there is no change `{shown}`; GET /changes lists all"))
        };
        if !self.changes.contains_key(id) && !self.unreadable.contains(id) {
            return Err(unknown());
        }
        let existed = match self.shared.clone() {
            Some(shared) => {
                self.fields = None;
                shared.remove(id).await?
            }
            None => true,
        };
        self.unreadable.remove(id);
        let change = self.changes.remove(id);
        self.publish(rules);
        if !existed {
            return Err(unknown());
        }
        Ok(change.map(|change| {
            let rule = NamedRule::of(&change, rules.rules);
            audit_log::ended(&change, rule.as_ref(), &excerpt(by, BY_CHARS_MAX));
            EndedChange { change, rule }
        }))
    }

    /// The current change with this id.
    fn listed(&self, id: &str) -> Option<ListedChange> {
        self.current.all().list().iter().find(|listed| listed.change.id == id).cloned()
    }

    /// A new id, unique among all instances.
    fn next_id(&mut self) -> String {
        let (seed, number) = &mut self.ids;
        *number += 1;
        format!("{:016x}", KeyBuilder::start(seed).number(*number).finish().0[0])
    }

    /// Reads the shared changes, if there are any.
    async fn read(&mut self, local: Micros) -> Result<(), SharedChangesError> {
        let Some(shared) = self.shared.clone() else { return Ok(()) };
        let mut fields = shared.read().await?;
        // With a wrong clock, this instance would remove changes that are not over.
        let now = shared.now(local).ok_or(StoreError::Unreachable)?;
        self.current.set_clock(local, now);
        self.has_read = true;
        fields.sort_unstable();
        if self.fields.as_ref() != Some(&fields) {
            self.take(&fields, local);
            self.fields = Some(fields);
        }
        Ok(())
    }

    /// Replaces all changes by those of `fields`.
    fn take(&mut self, fields: &[(String, Vec<u8>)], local: Micros) {
        let mut all = Vec::with_capacity(fields.len());
        self.unreadable.clear();
        let mut first_problem = None;
        for (id, json) in fields {
            match TemporaryChange::from_json(id, json) {
                Ok(change) => all.push(change),
                Err(problem) => {
                    let shown = excerpt(id, ID_CHARS_MAX);
                    first_problem.get_or_insert_with(|| format!("`{shown}`: {problem}"));
                    self.unreadable.insert(id.clone());
                }
            }
        }
        match first_problem {
            Some(problem) if self.unreadable_log.down(&problem, local) => {
                let (number, error) = (self.unreadable.len(), one_line(&problem));
                tracing::warn!(number, %error, "stored temporary changes are unreadable");
            }
            Some(_) => {}
            None => {
                self.unreadable_log.up();
            }
        }
        all.sort_by(|one, other| one.order().cmp(&other.order()));
        self.replaced = replaced(&all);
        let kept = all.into_iter().filter(|change| !self.replaced.contains(&change.id));
        self.changes = kept.map(|change| (change.id.clone(), change)).collect();
        self.is_dirty = true;
    }

    /// Removes the changes that are over at `now`. The instance that removes one from the store logs it.
    async fn remove_over(&mut self, now: Micros) {
        let over = self.changes.values().filter(|change| !change.is_active(now));
        let over: Vec<String> = over.map(|change| change.id.clone()).collect();
        for id in over {
            let is_first = match self.shared.clone() {
                None => true,
                Some(shared) => {
                    // Without the store, it stays here too. It has no effect any more.
                    let Ok(existed) = shared.remove(&id).await else { return };
                    self.fields = None;
                    existed
                }
            };
            if let Some(change) = self.changes.remove(&id) {
                self.is_dirty = true;
                if is_first {
                    // A pass over the rules per change would take long: many may end at once.
                    let named = self.listed(&id).and_then(|listed| listed.rule);
                    audit_log::expired(&change, named.as_ref());
                }
            }
        }
        self.remove_replaced().await;
    }

    /// Removes replaced changes from the store. Their ids never return, so no newer change is lost.
    async fn remove_replaced(&mut self) {
        let Some(shared) = self.shared.clone() else { return };
        while let Some(id) = self.replaced.pop_first() {
            self.fields = None;
            if shared.remove(&id).await.is_err() {
                self.replaced.insert(id);
                return;
            }
        }
    }

    /// Makes the changes current.
    fn publish(&mut self, rules: RulesNow<'_>) {
        let all = self.changes.values().cloned().collect();
        let unreadable = self.unreadable.iter().cloned().collect();
        self.current.publish(ActiveChanges::compile(all, rules.rules), unreadable);
        self.compiled_for = Some(rules.version);
        self.is_dirty = false;
    }

    fn record_success(&mut self) {
        self.refusals = 0;
        self.current.set_error(None);
        if self.outage.up() {
            tracing::info!("temporary changes are read again");
        }
    }

    fn record_failure(&mut self, error: SharedChangesError, local: Micros) {
        self.reads = self.reads.saturating_add(1);
        let is_connecting = error == SharedChangesError::Store(StoreError::Unreachable);
        if is_connecting && !self.has_read && self.reads < FIRST_READS {
            return;
        }
        self.refusals = match error {
            SharedChangesError::TooMany(_)
            | SharedChangesError::Store(StoreError::ErrorReply | StoreError::InvalidReply) => {
                self.refusals.saturating_add(1)
            }
            SharedChangesError::Store(_) => 0,
        };
        let error = error.to_string();
        if self.outage.down(&error, local) {
            tracing::warn!(%error, "temporary changes cannot be read: the last ones stay");
        }
        self.current.set_error(Some(error));
    }
}

/// The ids of the changes that a later one of `ordered` replaces.
fn replaced(ordered: &[TemporaryChange]) -> BTreeSet<String> {
    let mut last: HashMap<_, &str> = HashMap::with_capacity(ordered.len());
    let before = ordered.iter().filter_map(|change| last.insert(change.place(), &change.id));
    before.map(str::to_owned).collect()
}
