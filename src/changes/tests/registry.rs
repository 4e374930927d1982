//! The registry over a store that several instances share, and over none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt};

use super::*;
use crate::store_error::StoreError;
use crate::testing::lock;

/// The hash that instances share, whose clock is 1000 s ahead of that of the instances.
#[derive(Default)]
struct FakeHash {
    fields: Mutex<BTreeMap<String, Vec<u8>>>,
    error: Mutex<Option<SharedChangesError>>,
}

const AHEAD: Micros = Micros::from_secs(1_000);

impl FakeHash {
    fn fail(&self, error: Option<StoreError>) {
        *lock(&self.error) = error.map(SharedChangesError::Store);
    }

    fn ids(&self) -> Vec<String> {
        lock(&self.fields).keys().cloned().collect()
    }

    fn put(&self, id: &str, json: &str) {
        lock(&self.fields).insert(id.to_owned(), json.as_bytes().to_vec());
    }

    /// The result of an operation, unless the store fails.
    fn reply<T: Send>(&self, result: impl FnOnce() -> T) -> Result<T, SharedChangesError> {
        match *lock(&self.error) {
            Some(error) => Err(error),
            None => Ok(result()),
        }
    }
}

impl SharedChanges for FakeHash {
    fn now(&self, local: Micros) -> Option<Micros> {
        self.reply(|| local.saturating_add(AHEAD)).ok()
    }

    fn read(&self) -> BoxFuture<'_, Result<StoredChanges, SharedChangesError>> {
        let fields = || lock(&self.fields).clone().into_iter().collect();
        std::future::ready(self.reply(fields)).boxed()
    }

    fn write<'a>(
        &'a self,
        id: &'a str,
        change: &'a [u8],
    ) -> BoxFuture<'a, Result<(), SharedChangesError>> {
        let insert = || drop(lock(&self.fields).insert(id.to_owned(), change.to_vec()));
        std::future::ready(self.reply(insert)).boxed()
    }

    fn remove<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, SharedChangesError>> {
        let remove = || lock(&self.fields).remove(id).is_some();
        std::future::ready(self.reply(remove)).boxed()
    }
}

/// One instance.
struct Instance {
    registry: ChangeRegistry,
    current: Arc<CurrentChanges>,
    rules: RuleSet,
    version: u64,
}

impl Instance {
    fn over(hash: Option<&Arc<FakeHash>>) -> Instance {
        let current = Arc::<CurrentChanges>::default();
        let shared = hash.map(|hash| Arc::clone(hash) as Arc<dyn SharedChanges>);
        let registry = ChangeRegistry::new(current.clone(), shared);
        Instance { registry, current, rules: rules(), version: 0 }
    }

    async fn refresh(&mut self, local: Micros) {
        let rules = RulesNow { version: self.version, rules: &self.rules };
        self.registry.refresh(local, rules).await;
    }

    async fn make(&mut self, body: &str, local: Micros) -> Result<MadeChange, ChangeProblem> {
        let request = ChangeRequest::from_json(body.as_bytes()).expect("a request");
        let rules = RulesNow { version: self.version, rules: &self.rules };
        self.registry.make(request, "ann", &BOUNDS, local, rules).await
    }

    async fn end(&mut self, id: &str, local: Micros) -> Result<(), ChangeProblem> {
        let rules = RulesNow { version: self.version, rules: &self.rules };
        self.registry.end(id, "bob", local, rules).await.map(drop)
    }

    /// The action on `user=ann` at `local`.
    fn action(&self, local: Micros) -> &'static str {
        let Some(active) = self.current.get() else { return "none" };
        let rule = found(&self.rules, "user=ann");
        let entries = [crate::descriptor::Entry { key: "user", value: "ann" }];
        match active.of(rule, "d", &entries, self.current.now(local)) {
            None => "none",
            Some(AppliedChange::Block { .. }) => "block",
            Some(AppliedChange::Bypass) => "bypass",
            Some(AppliedChange::Limit(_)) => "limit",
        }
    }
}

const BLOCK: &str = r#"{"domain":"d","descriptor":"user=ann","block":true,"for":"60s"}"#;

fn at(seconds: u64) -> Micros {
    NOW.saturating_add(Micros::from_secs(seconds))
}

#[tokio::test]
async fn a_change_is_active_in_its_process_at_once() {
    let mut one = Instance::over(None);
    assert_eq!(one.registry.period(), None, "nothing can become due");
    assert!(one.current.get().is_none(), "a decision reads one flag");
    let MadeChange { listed, replaces, warning } = one.make(BLOCK, NOW).await.expect("a change");
    assert_eq!((replaces, listed.problem, warning), (None, None, None));
    assert_eq!(one.action(NOW), "block");
    assert_eq!(one.registry.period(), Some(POLL_PERIOD));
    assert_eq!([one.action(at(59)), one.action(at(60))], ["block", "none"]);
    one.refresh(at(60)).await;
    assert!(one.current.get().is_none(), "it was removed");
    assert_eq!(one.registry.period(), None);
}

#[tokio::test]
async fn a_change_can_be_ended() {
    let mut one = Instance::over(None);
    let id = one.make(BLOCK, NOW).await.expect("a change").listed.change.id;
    assert!(matches!(one.end("x", NOW).await, Err(ChangeProblem::Unknown(_))));
    assert_eq!(one.end(&id, NOW).await, Ok(()));
    assert_eq!(one.action(NOW), "none");
    assert!(matches!(one.end(&id, NOW).await, Err(ChangeProblem::Unknown(_))));
}

#[tokio::test]
async fn an_equal_target_and_action_is_replaced() {
    let hash = Arc::<FakeHash>::default();
    for shared in [None, Some(&hash)] {
        let mut one = Instance::over(shared);
        let first = one.make(BLOCK, NOW).await.expect("a change").listed.change;
        let longer = BLOCK.replace("60s", "600s");
        // The clock stands still, so the order of both must not depend on it.
        let second = one.make(&longer, NOW).await.expect("a change");
        assert_eq!(second.replaces.as_ref(), Some(&first.id));
        assert_ne!(second.listed.change.id, first.id);
        assert!(second.listed.change.made_at > first.made_at);
        assert_eq!(one.current.all().list().len(), 1);
        assert_eq!(one.action(at(599)), "block");
        let limit = r#"{"domain":"d","descriptor":"user=ann","limit":1,"for":"60s"}"#;
        let third = one.make(limit, NOW).await.expect("a change");
        assert_eq!(third.replaces, None, "another action");
        assert_eq!(one.current.all().list().len(), 2);
    }
    assert_eq!(hash.ids().len(), 2, "the replaced one was removed");
}

#[tokio::test]
async fn instances_have_the_same_changes() {
    let hash = Arc::<FakeHash>::default();
    let [mut one, mut two] = [(); 2].map(|()| Instance::over(Some(&hash)));
    let id = one.make(BLOCK, NOW).await.expect("a change").listed.change.id;
    assert_eq!(two.action(NOW), "none");
    two.refresh(NOW).await;
    assert_eq!(two.action(NOW), "block");
    two.end(&id, NOW).await.expect("it exists");
    one.refresh(NOW).await;
    assert_eq!(one.action(NOW), "none");
}

/// The end of a change is one instant, whatever the clocks of the instances show.
#[tokio::test]
async fn a_change_ends_by_the_clock_of_the_store() {
    let hash = Arc::<FakeHash>::default();
    let mut one = Instance::over(Some(&hash));
    let change = one.make(BLOCK, NOW).await.expect("a change").listed.change;
    assert_eq!(change.until, at(1_060));
    assert_eq!([one.action(at(59)), one.action(at(60))], ["block", "none"]);
    one.refresh(at(60)).await;
    assert!(hash.ids().is_empty(), "a change that is over is removed");
}

#[tokio::test]
async fn changes_stay_without_the_store() {
    let hash = Arc::<FakeHash>::default();
    let mut one = Instance::over(Some(&hash));
    one.make(BLOCK, NOW).await.expect("a change");
    for error in [StoreError::Unreachable, StoreError::Timeout, StoreError::ErrorReply] {
        hash.fail(Some(error));
        one.refresh(at(10)).await;
        assert_eq!(one.action(at(10)), "block");
        let made = one.make(BLOCK, at(10)).await;
        let Err(ChangeProblem::Store(why)) = made else { panic!("{made:?}") };
        assert!(why.contains(&error.to_string()), "{why}");
        let last = one.current.last_error().expect("an error");
        assert_eq!(*last, error.to_string());
    }
    one.refresh(at(61)).await;
    assert_eq!(one.action(at(61)), "none", "its end has come");
    assert_eq!(hash.ids().len(), 1);
    hash.fail(None);
    one.refresh(at(62)).await;
    assert!(hash.ids().is_empty());
    assert_eq!(one.current.last_error(), None);
    assert_eq!(one.current.poll_errors(), 4);
}

#[tokio::test]
async fn a_new_instance_reads_the_changes() {
    let hash = Arc::<FakeHash>::default();
    Instance::over(Some(&hash)).make(BLOCK, NOW).await.expect("a change");
    let mut late = Instance::over(Some(&hash));
    hash.fail(Some(StoreError::Unreachable));
    let first = late.registry.period().expect("it reads");
    late.refresh(NOW).await;
    assert_eq!(late.current.poll_errors(), 0, "it is still connecting");
    assert!(first < POLL_PERIOD, "it tries often until then");
    hash.fail(None);
    late.refresh(at(1)).await;
    assert_eq!(late.action(at(1)), "block");
    assert_eq!(late.registry.period(), Some(POLL_PERIOD));
}

/// A missing permission does not cause two calls per second for ever.
#[tokio::test]
async fn refused_reads_become_rare() {
    let hash = Arc::<FakeHash>::default();
    let mut one = Instance::over(Some(&hash));
    one.refresh(NOW).await;
    hash.fail(Some(StoreError::ErrorReply));
    for second in 0..20 {
        one.refresh(at(second)).await;
        assert_eq!(one.registry.period(), Some(POLL_PERIOD), "{second}");
    }
    one.refresh(at(20)).await;
    assert!(one.registry.period() > Some(POLL_PERIOD));
    hash.fail(None);
    one.refresh(at(21)).await;
    assert_eq!(one.registry.period(), Some(POLL_PERIOD));
}

#[tokio::test]
async fn bytes_that_are_no_change_are_listed_and_removable() {
    let hash = Arc::<FakeHash>::default();
    let mut one = Instance::over(Some(&hash));
    one.make(BLOCK, NOW).await.expect("a change");
    hash.put("other", "{}");
    one.refresh(NOW).await;
    assert_eq!(*one.current.unreadable(), ["other"]);
    assert_eq!(one.action(NOW), "block", "the others apply");
    one.end("other", NOW).await.expect("it is stored");
    assert_eq!(hash.ids().len(), 1);
    assert!(one.current.unreadable().is_empty());
}

/// Two instances that replace a change at the same time leave two of them.
#[tokio::test]
async fn of_two_stored_changes_the_later_applies() {
    let hash = Arc::<FakeHash>::default();
    let early = TemporaryChange { until: at(9_000), ..change("user", limit(&[1])) };
    let late = TemporaryChange { made_at: at(1), ..early.clone() };
    hash.put("a", &late.to_json());
    hash.put("b", &early.to_json());
    let mut one = Instance::over(Some(&hash));
    one.refresh(NOW).await;
    assert_eq!(hash.ids(), ["a"]);
    assert_eq!(one.current.all().list()[0].change.made_at, at(1));
}

#[tokio::test]
async fn the_number_of_changes_is_bounded() {
    let hash = Arc::<FakeHash>::default();
    for number in 0..CHANGES_MAX {
        let one = change(&format!("user={number}"), ChangeAction::Block);
        hash.put(&number.to_string(), &TemporaryChange { until: at(1_060), ..one }.to_json());
    }
    let mut one = Instance::over(Some(&hash));
    let body = |number: usize| BLOCK.replace("ann", &number.to_string());
    let more = one.make(&body(CHANGES_MAX), NOW).await;
    assert!(matches!(&more, Err(ChangeProblem::Conflict(why)) if why.contains("end some")));
    one.make(&body(7), NOW).await.expect("it replaces another one");
    one.make(&body(CHANGES_MAX), at(61)).await.expect("the others are over");
}

#[tokio::test]
async fn changes_are_compiled_for_new_rules() {
    let mut one = Instance::over(None);
    let limit = r#"{"domain":"d","rule":"user","limit":1,"for":"600s"}"#;
    one.make(limit, NOW).await.expect("a change");
    assert_eq!(one.action(NOW), "limit");
    let later = compiled(&RULES.replace("name: per-user, unit: minute", "unit: hour"));
    drop(one.current.use_rules(&later));
    assert_eq!(one.action(NOW), "limit", "requests still use the rules before");
    let before = std::mem::replace(&mut one.rules, later);
    assert_eq!(one.action(NOW), "limit", "the window is another one");
    one.version += 1;
    one.refresh(NOW).await;
    assert_eq!(one.action(NOW), "limit");
    let later = std::mem::replace(&mut one.rules, before);
    assert_eq!(one.action(NOW), "none", "no request uses the rules before");
    one.rules = later;
    one.refresh(NOW).await;
    assert_eq!(one.action(NOW), "limit");
    one.rules = compiled("domain: d\ndescriptors: [{ key: x }]");
    one.version += 1;
    one.refresh(NOW).await;
    assert_eq!(one.action(NOW), "none");
    let all = one.current.all();
    assert!(all.list()[0].problem.is_some(), "the list says so");
}
