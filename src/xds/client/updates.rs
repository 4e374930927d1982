//! Updates: applies responses and records the result.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::proto::xds::envoy::service::discovery::v3::DiscoveryResponse;
use crate::rules::{XdsOutcome, XdsResource};
use crate::time::{Clock, Micros, SystemClock};
use crate::xds::RulesByXds;
use crate::xds::session::{Answer, XdsResponse, XdsSession};
use crate::xds::status::XdsStatus;

/// Shortest time between two log lines about accepted updates.
const ACCEPTED_LOG_INTERVAL: Micros = Micros::SECOND;

/// What the cache must have: the rules after the last applied response.
#[derive(Clone, Debug)]
pub(super) struct CacheUpdate {
    pub(super) version: String,
    /// When the server sent it.
    pub(super) at: Micros,
    /// Whether all of it was accepted.
    pub(super) is_accepted: bool,
}

/// Applies updates, one at a time.
pub(super) struct Updates {
    rules: Arc<dyn RulesByXds>,
    status: Arc<XdsStatus>,
    clock: SystemClock,
    /// Gets an update whenever other rules become active; `None` without a cache.
    cache_updates: Option<watch::Sender<Option<CacheUpdate>>>,
    /// When the log last had a line about an accepted update.
    logged: Micros,
}

impl Updates {
    pub(super) fn new(
        rules: Arc<dyn RulesByXds>,
        status: Arc<XdsStatus>,
        clock: SystemClock,
        cache_updates: Option<watch::Sender<Option<CacheUpdate>>>,
    ) -> Updates {
        Updates { rules, status, clock, cache_updates, logged: Micros::ZERO }
    }

    /// Applies a response, and returns the answer to it.
    pub(super) async fn apply(
        &mut self,
        response: DiscoveryResponse,
        session: &mut XdsSession,
    ) -> Option<Answer> {
        let (rules, now, is_new) = (self.rules.clone(), self.clock.now(), session.is_new());
        let (version, resources) = (response.version_info.clone(), response.resources.len());
        // A set of many rules takes seconds. The connection must reply to pings meanwhile.
        let work = spawn_blocking(move || applied(&*rules, &response));
        let reasons = match work.await {
            Ok(outcome) => {
                self.status.applied(&version, &outcome, is_new, now);
                if let (Some(cache_updates), true) = (&self.cache_updates, is_new) {
                    self.status.set_cache_current(false);
                    let (version, is_accepted) = (version.clone(), outcome.reasons.is_empty());
                    cache_updates.send_replace(Some(CacheUpdate { version, at: now, is_accepted }));
                }
                outcome.reasons
            }
            // A panic in the work is a defect, and its place was logged.
            Err(error) => {
                self.status.rejected(is_new);
                vec![format!("the rules could not be applied: {error}")]
            }
        };
        if is_new && !reasons.is_empty() {
            let reasons = reasons.len();
            tracing::error!(
                version,
                reasons,
                "rules by xDS rejected: invalid parts are not active"
            );
        } else if is_new && now >= self.logged.saturating_add(ACCEPTED_LOG_INTERVAL) {
            self.logged = now;
            tracing::info!(version, resources, "rules by xDS accepted");
        }
        session.applied(&reasons)
    }

    /// Records that the server sent the active rules again.
    pub(super) fn confirmed(&self, response: &DiscoveryResponse) {
        self.status.confirmed(&response.version_info, self.clock.now());
    }
}

/// What the session needs of a response.
pub(super) fn summary(response: &DiscoveryResponse) -> XdsResponse {
    let hashes = response.resources.iter().map(|resource| {
        let mut hasher = DefaultHasher::new();
        (&resource.type_url, &resource.value).hash(&mut hasher);
        hasher.finish()
    });
    // A sum, because servers send the resources in any order.
    let content = hashes.fold(response.resources.len() as u64, u64::wrapping_add);
    XdsResponse { version: response.version_info.clone(), nonce: response.nonce.clone(), content }
}

/// Applies the resources of a response.
pub(super) fn applied(rules: &dyn RulesByXds, response: &DiscoveryResponse) -> XdsOutcome {
    let resources = response.resources.iter();
    let resources: Vec<XdsResource<'_>> = resources
        .map(|resource| XdsResource { type_url: &resource.type_url, value: &resource.value })
        .collect();
    rules.apply(&response.version_info, &resources)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::xds::status::FirstRules;
    use prost_types::Any;
    use std::sync::Mutex;

    /// Rules that leave out the resource `bad`, and record their calls. The resource `panic` panics.
    #[derive(Default)]
    pub(crate) struct TestRules {
        calls: Mutex<Vec<String>>,
        active: Mutex<Vec<String>>,
    }

    impl TestRules {
        /// Rules with active resources.
        pub(crate) fn active(values: &[&str]) -> TestRules {
            let active = values.iter().map(|&value| value.to_owned()).collect();
            TestRules { active: Mutex::new(active), ..TestRules::default() }
        }

        /// The version and the resources of each call.
        pub(crate) fn calls(&self) -> Vec<String> {
            self.calls.lock().unwrap().clone()
        }
    }

    impl RulesByXds for TestRules {
        fn apply(&self, version: &str, resources: &[XdsResource<'_>]) -> XdsOutcome {
            let text = |one: &XdsResource<'_>| String::from_utf8_lossy(one.value).into_owned();
            let values: Vec<String> = resources.iter().map(text).collect();
            self.calls.lock().unwrap().push(format!("{version} {}", values.join("+")));
            assert!(!values.iter().any(|value| value == "panic"), "a defect");
            let (reasons, valid): (Vec<String>, Vec<String>) =
                values.into_iter().partition(|value| value == "bad");
            *self.active.lock().unwrap() = valid;
            XdsOutcome { dropped: reasons.len(), kept: 0, reasons }
        }

        fn encoded(&self) -> Vec<Vec<u8>> {
            self.active.lock().unwrap().iter().map(|value| value.as_bytes().to_vec()).collect()
        }
    }

    fn response(version: &str, values: &[&str]) -> DiscoveryResponse {
        let resource =
            |value: &&str| Any { type_url: "t".to_owned(), value: value.as_bytes().to_vec() };
        DiscoveryResponse {
            version_info: version.to_owned(),
            resources: values.iter().map(resource).collect(),
            ..DiscoveryResponse::default()
        }
    }

    /// Receives a response, and applies it.
    async fn update(
        updates: &mut Updates,
        session: &mut XdsSession,
        response: DiscoveryResponse,
    ) -> Answer {
        session.received(summary(&response));
        updates.apply(response, session).await.unwrap()
    }

    #[test]
    fn the_order_of_resources_does_not_matter() {
        let content = |values: &[&str]| summary(&response("1", values)).content;
        assert_eq!(content(&["a", "b", "c"]), content(&["c", "a", "b"]));
        let others: [&[&str]; 5] =
            [&["a", "b"], &["a", "b", "b"], &["a", "b", "d"], &["a", "b", "c", ""], &[]];
        for other in others {
            assert_ne!(content(&["a", "b", "c"]), content(other), "{other:?}");
        }
    }

    /// Also those of a rejected response: its valid parts are active. Equal content changes nothing.
    #[tokio::test]
    async fn other_active_rules_reach_the_cache() {
        let (cache_updates, mut seen) = watch::channel(None);
        let status = Arc::new(XdsStatus::default());
        let rules = Arc::new(TestRules::default());
        let clock = SystemClock::new();
        let mut updates = Updates::new(rules, status.clone(), clock, Some(cache_updates));
        let mut session = XdsSession::default();
        let table = [("1", "b", "1", true), ("2", "bad", "1", true), ("3", "bad", "1", false)];
        for (version, value, answered, is_new) in table {
            let response = response(version, &["a", value]);
            let answer = update(&mut updates, &mut session, response).await.request;
            assert_eq!(answer.version, answered, "response {version}");
            assert_eq!(answer.error.is_some(), value == "bad", "response {version}");
            assert_eq!(seen.has_changed().unwrap(), is_new, "response {version}");
            let cache_update = seen.borrow_and_update().clone();
            assert_eq!(
                cache_update.is_some_and(|cache_update| cache_update.version == version),
                is_new
            );
            assert!(!status.is_cache_current(), "it is not written yet");
        }
        assert_eq!(status.updates(), (1, 1));
        assert_eq!(status.faulty_parts(), (0, 1));
        assert_eq!(status.version().as_deref().map(String::as_str), Some("3"));
    }

    #[tokio::test]
    async fn a_reconnect_is_no_update() {
        let status = Arc::new(XdsStatus::default());
        let rules = Arc::new(TestRules::default());
        let mut updates = Updates::new(rules.clone(), status.clone(), SystemClock::new(), None);
        let mut session = XdsSession::default();
        for version in ["7", "1"] {
            session.opened();
            update(&mut updates, &mut session, response(version, &["a"])).await;
        }
        assert_eq!(rules.calls(), ["7 a", "1 a"], "the version may be another one");
        assert_eq!(status.updates(), (1, 0));
        assert!(status.is_cache_current(), "there is no cache");
    }

    /// The same response again must not be accepted, because its rules are not active.
    #[tokio::test]
    async fn a_panic_rejects_the_update() {
        let (cache_updates, seen) = watch::channel(None);
        let status = Arc::new(XdsStatus::default());
        let rules = Arc::new(TestRules::default());
        let clock = SystemClock::new();
        let mut updates = Updates::new(rules, status.clone(), clock, Some(cache_updates));
        let mut session = XdsSession::default();
        for _ in 0..2 {
            let answer = update(&mut updates, &mut session, response("1", &["panic"])).await;
            let error = answer.request.error;
            assert!(error.is_some_and(|text| text.contains("could not be applied")));
        }
        assert_eq!(status.first_rules(), FirstRules::Rejected);
        assert_eq!(status.version(), None);
        assert!(!seen.has_changed().unwrap(), "the cache stays");
    }
}
