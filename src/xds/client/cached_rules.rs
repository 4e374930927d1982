//! The rules of the cache: applied at the start, and written beside the stream, so that a slow disk
//! delays no answer.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use prost_types::Any;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::updates::{CacheUpdate, applied};
use crate::proto::xds::envoy::service::discovery::v3::DiscoveryResponse;
use crate::rules::{XDS_TYPE_URL, XdsOutcome};
use crate::time::Micros;
use crate::xds::RulesByXds;
use crate::xds::cache::Cache;
use crate::xds::status::XdsStatus;

/// Pause after a failed write, unless other rules become active before.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Applies the rules of the cache, if there are any. Blocks.
pub(super) fn apply(cache: &Cache, rules: &dyn RulesByXds, status: &XdsStatus) {
    let path = cache.path().display();
    match read_and_apply(cache, rules) {
        Ok(None) => {}
        Ok(Some((version, outcome, written))) => {
            status.cache_applied(&version, &outcome, written);
            let rejected = outcome.reasons.len();
            tracing::info!(version, %path, rejected, "rules of the xDS cache are active");
        }
        Err(error) => tracing::error!(%path, %error, "xDS cache not read"),
    }
}

/// The version of the cache, the result of its rules, and when it was written.
fn read_and_apply(
    cache: &Cache,
    rules: &dyn RulesByXds,
) -> io::Result<Option<(String, XdsOutcome, Micros)>> {
    let Some((bytes, written)) = cache.read()? else { return Ok(None) };
    let response = DiscoveryResponse::decode(&*bytes).map_err(io::Error::other)?;
    // A defect that the rules cause must not end each start.
    let outcome = catch_unwind(AssertUnwindSafe(|| applied(rules, &response)));
    let outcome = outcome.map_err(|_| io::Error::other("its rules could not be applied"))?;
    Ok(Some((response.version_info, outcome, written)))
}

/// Writes the active rules whenever there is another update, until the sender is dropped. Of several
/// updates during a write, only the last one counts.
pub(super) async fn keep(
    cache: Cache,
    rules: Arc<dyn RulesByXds>,
    status: Arc<XdsStatus>,
    mut cache_updates: watch::Receiver<Option<CacheUpdate>>,
) {
    let path = cache.path().display().to_string();
    let mut is_failing = false;
    loop {
        let cache_update = cache_updates.borrow_and_update().clone();
        if let Some(cache_update) = cache_update {
            let (cache, rules) = (cache.clone(), rules.clone());
            let work = spawn_blocking(move || write(&cache, &*rules, cache_update));
            // A panic is a defect, and its place was logged.
            let written = work.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            match &written {
                Err(error) if !is_failing => {
                    tracing::error!(path, %error, "xDS cache not written");
                }
                Ok(()) if is_failing => tracing::info!(path, "xDS cache written again"),
                _ => {}
            }
            is_failing = written.is_err();
            let is_last = !cache_updates.has_changed().unwrap_or(false);
            status.set_cache_current(!is_failing && is_last);
        }
        let changed = cache_updates.changed();
        let changed = if is_failing {
            timeout(RETRY_AFTER, changed).await.unwrap_or(Ok(()))
        } else {
            changed.await
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Writes the active rules as a response of all their resources.
fn write(cache: &Cache, rules: &dyn RulesByXds, cache_update: CacheUpdate) -> io::Result<()> {
    let any = |value| Any { type_url: XDS_TYPE_URL.to_owned(), value };
    let resources: Vec<Any> = rules.encoded().into_iter().map(any).collect();
    if resources.is_empty() && !cache_update.is_accepted {
        // The next start would be ready without rules, although the server has some.
        return Ok(());
    }
    let version_info = cache_update.version;
    let response = DiscoveryResponse { version_info, resources, ..DiscoveryResponse::default() };
    cache.write(&response.encode_to_vec(), cache_update.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::client::updates::tests::TestRules;
    use crate::xds::status::FirstRules;

    fn cache(folder: &tempfile::TempDir) -> Cache {
        Cache::new(&folder.path().join("cache"), "server:1", "node", 1_000)
    }

    /// Starts with the cache. Returns the calls of the rules, and the status.
    fn start(cache: &Cache) -> (Vec<String>, XdsStatus) {
        let (rules, status) = (TestRules::default(), XdsStatus::default());
        apply(cache, &rules, &status);
        (rules.calls(), status)
    }

    fn cache_update(version: &str, is_accepted: bool) -> CacheUpdate {
        CacheUpdate { version: version.to_owned(), at: Micros::SECOND, is_accepted }
    }

    /// Sends an update, and marks the cache as outdated, as [`Updates`] does.
    fn send(cache_updates: &watch::Sender<Option<CacheUpdate>>, status: &XdsStatus, version: &str) {
        status.set_cache_current(false);
        cache_updates.send_replace(Some(cache_update(version, true)));
    }

    /// Waits until the cache is written. Each turn lets the task run.
    async fn until_current(status: &XdsStatus) {
        while !status.is_cache_current() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn the_active_rules_are_there_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        assert_eq!(start(&cache).1.first_rules(), FirstRules::Missing, "there is no cache yet");
        let rules = TestRules::active(&["a", "b"]);
        write(&cache, &rules, cache_update("7", false)).unwrap();
        let (calls, status) = start(&cache);
        assert_eq!(calls, ["7 a+b"]);
        assert!(status.is_from_cache());
        assert_eq!(status.first_rules(), FirstRules::Accepted);
        assert_eq!(status.version().as_deref().map(String::as_str), Some("7"));
        assert_eq!(status.updated(), Some(Micros::SECOND));
    }

    /// An accepted response without rules removes those of the cache. One with errors only does not.
    #[test]
    fn only_an_accepted_response_empties_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        write(&cache, &TestRules::default(), cache_update("1", false)).unwrap();
        assert_eq!(start(&cache).1.first_rules(), FirstRules::Missing);
        write(&cache, &TestRules::default(), cache_update("2", true)).unwrap();
        assert_eq!(start(&cache).0, ["2 "]);
    }

    /// The process must start, and wait for the server.
    #[test]
    fn an_unusable_cache_is_no_cache() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        std::fs::write(cache.path(), "damaged").unwrap();
        assert_eq!(start(&cache).0, [""; 0]);
        let rules = TestRules::active(&["panic"]);
        write(&cache, &rules, cache_update("7", false)).unwrap();
        let (calls, status) = start(&cache);
        assert_eq!(calls, ["7 panic"]);
        assert_eq!(status.first_rules(), FirstRules::Missing);
        assert!(!status.is_from_cache());
    }

    #[tokio::test]
    async fn the_cache_follows_the_updates() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        let (cache_updates, seen) = watch::channel(None);
        let status = Arc::new(XdsStatus::default());
        let rules = Arc::new(TestRules::active(&["a"]));
        let task = tokio::spawn(keep(cache.clone(), rules.clone(), status.clone(), seen));
        // The second one comes before the task runs.
        send(&cache_updates, &status, "1");
        send(&cache_updates, &status, "2");
        until_current(&status).await;
        assert_eq!(start(&cache).0, ["2 a"]);
        drop(cache_updates);
        task.await.unwrap();
    }

    /// The time is paused: it passes while nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_failed_write_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder);
        let status = Arc::new(XdsStatus::default());
        let (cache_updates, seen) = watch::channel(None);
        // A file cannot replace a folder.
        std::fs::create_dir(cache.path()).unwrap();
        let rules = Arc::new(TestRules::active(&["a"]));
        let task = tokio::spawn(keep(cache.clone(), rules, status.clone(), seen));
        send(&cache_updates, &status, "1");
        tokio::time::sleep(RETRY_AFTER / 2).await;
        assert!(!status.is_cache_current());
        std::fs::remove_dir(cache.path()).unwrap();
        tokio::time::sleep(2 * RETRY_AFTER).await;
        until_current(&status).await;
        assert_eq!(start(&cache).0, ["1 a"]);
        drop(cache_updates);
        task.await.unwrap();
    }
}
