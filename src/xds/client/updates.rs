//! Updates: applies responses and the cache, records the result, and keeps accepted responses.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;

use prost::Message;
use tokio::task::spawn_blocking;

use crate::proto::xds::envoy::service::discovery::v3::DiscoveryResponse;
use crate::time::{Clock, Micros, SystemClock};
use crate::xds::cache::Cache;
use crate::xds::session::{Request, Response, Session};
use crate::xds::status::XdsStatus;
use crate::xds::{Apply, Resource};

/// Shortest time between two log lines about accepted updates.
const PAUSE: Micros = Micros::SECOND;

/// Applies updates, one at a time.
pub(super) struct Updates {
    apply: Apply,
    cache: Option<Cache>,
    /// Whether the last write of the cache failed.
    is_cache_failing: bool,
    status: Arc<XdsStatus>,
    clock: SystemClock,
    /// When the log last had a line about an accepted update.
    logged: Micros,
}

impl Updates {
    pub(super) fn new(
        apply: Apply,
        cache: Option<Cache>,
        status: Arc<XdsStatus>,
        clock: SystemClock,
    ) -> Updates {
        let (is_cache_failing, logged) = (false, Micros::ZERO);
        Updates { apply, cache, is_cache_failing, status, clock, logged }
    }

    /// Applies the response in the cache, if there is one. Blocks.
    pub(super) fn apply_cache(&self) {
        let Some(cache) = &self.cache else { return };
        let path = cache.path().display();
        let decoded = cache.read().and_then(|found| {
            let Some((bytes, written)) = found else { return Ok(None) };
            let response = DiscoveryResponse::decode(&*bytes).map_err(io::Error::other)?;
            Ok(Some((response, written)))
        });
        match decoded {
            Ok(None) => {}
            Ok(Some((response, written))) => {
                let reasons = applied(&self.apply, &response);
                let version = response.version_info.as_str();
                self.status.cache_applied(version, written, reasons.is_empty());
                let rejected = reasons.len();
                tracing::info!(version, %path, rejected, "rules of the xDS cache are active");
            }
            Err(error) => tracing::error!(%path, %error, "xDS cache not read"),
        }
    }

    /// Applies a response, and returns the answer to it.
    pub(super) async fn apply(
        &mut self,
        response: DiscoveryResponse,
        session: &mut Session,
    ) -> Option<Request> {
        let (apply, cache, now) = (self.apply.clone(), self.cache.clone(), self.clock.now());
        let (version, resources) = (response.version_info.clone(), response.resources.len());
        // A set of many rules takes seconds. The connection must reply to pings meanwhile.
        let work = spawn_blocking(move || {
            let reasons = applied(&apply, &response);
            let cache = cache.filter(|_| reasons.is_empty());
            let written = cache.map(|cache| cache.write(&response.encode_to_vec(), now));
            (reasons, written)
        });
        let (reasons, written) = work.await.unwrap_or_else(|error| {
            // A panic in the work is a defect, and its place was logged.
            (vec![format!("the rules could not be applied: {error}")], None)
        });
        if let Some(written) = written {
            self.log_cache(written);
        }
        let is_new = !session.is_repeated();
        if !reasons.is_empty() {
            self.status.rejected(is_new);
            if is_new {
                let reasons = reasons.len();
                tracing::error!(version, reasons, "rules by xDS rejected: valid parts are active");
            }
        } else {
            self.status.accepted(&version, true, now);
            if now >= self.logged.saturating_add(PAUSE) {
                self.logged = now;
                tracing::info!(version, resources, "rules by xDS accepted");
            }
        }
        session.applied(&reasons)
    }

    /// Records that the server sent the active rules again.
    pub(super) fn confirmed(&mut self, response: &DiscoveryResponse) {
        self.status.accepted(&response.version_info, false, self.clock.now());
    }

    fn log_cache(&mut self, written: io::Result<()>) {
        let path = self.cache.as_ref().map(|cache| cache.path().display().to_string());
        match &written {
            Err(error) if !self.is_cache_failing => {
                tracing::error!(path, %error, "xDS cache not written");
            }
            Ok(()) if self.is_cache_failing => tracing::info!(path, "xDS cache written again"),
            _ => {}
        }
        self.is_cache_failing = written.is_err();
    }
}

/// What the session needs of a response.
pub(super) fn summary(response: &DiscoveryResponse) -> Response {
    let hashes = response.resources.iter().map(|resource| {
        let mut hasher = DefaultHasher::new();
        (&resource.type_url, &resource.value).hash(&mut hasher);
        hasher.finish()
    });
    // A sum, because servers send the resources in any order.
    let content = hashes.fold(response.resources.len() as u64, u64::wrapping_add);
    Response { version: response.version_info.clone(), nonce: response.nonce.clone(), content }
}

/// Applies the resources of a response, and returns the reasons against them.
fn applied(apply: &Apply, response: &DiscoveryResponse) -> Vec<String> {
    let resources = response.resources.iter();
    let resources: Vec<Resource<'_>> = resources
        .map(|resource| Resource { type_url: &resource.type_url, value: &resource.value })
        .collect();
    apply(&response.version_info, &resources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::status::FirstRules;
    use prost_types::Any;
    use std::sync::Mutex;

    fn response(version: &str, values: &[&str]) -> DiscoveryResponse {
        let resource =
            |value: &&str| Any { type_url: "t".to_owned(), value: value.as_bytes().to_vec() };
        DiscoveryResponse {
            version_info: version.to_owned(),
            resources: values.iter().map(resource).collect(),
            ..DiscoveryResponse::default()
        }
    }

    /// An application that rejects the resource `bad`, and records the resources it gets.
    fn application() -> (Apply, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let records = seen.clone();
        let apply: Apply = Arc::new(move |version: &str, resources: &[Resource<'_>]| {
            let text = |one: &Resource<'_>| String::from_utf8_lossy(one.value).into_owned();
            let values: Vec<String> = resources.iter().map(text).collect();
            records.lock().unwrap().push(format!("{version} {}", values.join("+")));
            values.iter().filter(|value| *value == "bad").cloned().collect()
        });
        (apply, seen)
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

    #[tokio::test]
    async fn accepted_responses_are_kept_for_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(&folder.path().join("cache"), 1_000);
        let (clock, status) = (SystemClock::new(), Arc::new(XdsStatus::default()));
        let (apply, _) = application();
        let mut updates = Updates::new(apply, Some(cache.clone()), status.clone(), clock);
        updates.apply_cache();
        assert_eq!(status.first_rules(), FirstRules::Missing, "there is no cache yet");
        let mut session = Session::default();
        for (version, values) in [("1", ["a", "b"]), ("2", ["a", "bad"])] {
            let response = response(version, &values);
            session.received(summary(&response));
            let answer = updates.apply(response, &mut session).await.unwrap();
            assert_eq!((answer.version.as_str(), answer.error.is_none()), ("1", version == "1"));
        }
        assert_eq!((status.updates(), status.nacks()), ((1, 1), 1));

        let (apply, seen) = application();
        let status = Arc::new(XdsStatus::default());
        Updates::new(apply, Some(cache.clone()), status.clone(), clock).apply_cache();
        assert_eq!(*seen.lock().unwrap(), ["1 a+b"]);
        assert!(status.is_from_cache());
        assert_eq!(status.version().as_deref().map(String::as_str), Some("1"));

        std::fs::write(cache.path(), "damaged").unwrap();
        let (apply, seen) = application();
        let status = Arc::new(XdsStatus::default());
        Updates::new(apply, Some(cache), status.clone(), clock).apply_cache();
        assert!(seen.lock().unwrap().is_empty());
        assert_eq!(status.first_rules(), FirstRules::Missing);
    }

    #[tokio::test]
    async fn a_panic_rejects_the_update() {
        let status = Arc::new(XdsStatus::default());
        let apply: Apply =
            Arc::new(|_: &str, _: &[Resource<'_>]| -> Vec<String> { panic!("a defect") });
        let mut updates = Updates::new(apply, None, status.clone(), SystemClock::new());
        let mut session = Session::default();
        let response = response("1", &["a"]);
        session.received(summary(&response));
        let answer = updates.apply(response, &mut session).await.unwrap();
        assert!(answer.error.is_some_and(|text| text.contains("could not be applied")));
        assert_eq!(status.first_rules(), FirstRules::Rejected);
    }
}
