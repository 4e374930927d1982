//! The cache: rules for a start while the server is unreachable or silent.

use std::net::SocketAddr;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{HOUR, is_ready, limit, one_limit, setup, until_limit, wait_for_silence};
use crate::support::ads::{Ads, limited, rules};
use crate::support::wait::until;
use crate::support::weir::cli::run;
use crate::support::weir::{Setup, Weir, write};

/// A folder for one cache.
struct Cache(TempDir);

impl Cache {
    fn new() -> Cache {
        Cache(TempDir::new().expect("a temporary folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("rules")
    }

    /// A weir with this cache.
    fn with(&self, address: SocketAddr) -> Setup {
        let path = self.path();
        setup(&address.to_string()).env("WEIR__RULES__XDS__CACHE_FILE", &path.to_string_lossy())
    }
}

/// Stops weir and the server once the cache has the active rules. An answer has come before, so they are
/// written already or the metric is 0. Returns the address.
fn stop(weir: Weir, ads: Ads) -> SocketAddr {
    until("the cache is written", || weir.metric("weir_xds_cache_current", &[]) == 1);
    drop(weir);
    ads.address
}

#[test]
fn the_cache_serves_until_the_server_answers() {
    let cache = Cache::new();
    let ads = Ads::start();
    ads.set("7", one_limit(5));
    let weir = cache.with(ads.address).start();
    assert!(ads.answer().error_detail.is_none());
    let address = stop(weir, ads);

    let weir = cache.with(address).start();
    let client = weir.client();
    assert_eq!(limit(&client, "k"), 5, "active from the start");
    assert!(is_ready(&weir));
    assert_eq!(weir.metric("weir_xds_rules_from_cache", &[]), 1);
    assert_eq!(weir.metric("weir_xds_version_info", &[r#"version="7""#]), 1);
    let ads = Ads::again_at(address);
    ads.set("1", one_limit(6));
    until_limit(&client, 6);
    until("the cache is replaced", || weir.metric("weir_xds_rules_from_cache", &[]) == 0);
}

/// One error must not freeze the cache: the valid parts of the response are active.
#[test]
fn a_rejected_response_replaces_the_cache() {
    let cache = Cache::new();
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let weir = cache.with(ads.address).start();
    assert!(ads.answer().error_detail.is_none());
    ads.set("2", vec![rules("a", vec![limited("k", HOUR, 6), limited("bad", 99, 1)])]);
    assert!(ads.answer().error_detail.is_some());
    assert_eq!(weir.metric("weir_xds_version_info", &[r#"version="2""#]), 1);
    assert_eq!(weir.metric("weir_xds_dropped_parts", &[]), 1);
    let address = stop(weir, ads);

    let weir = cache.with(address).start();
    assert_eq!(limit(&weir.client(), "k"), 6, "the rules that were active");
    assert_eq!(weir.metric("weir_xds_version_info", &[r#"version="2""#]), 1);
    // The first response has errors too, but the rules are no longer those of the cache.
    let ads = Ads::again_at(address);
    ads.set("3", vec![rules("a", vec![limited("k", HOUR, 7), limited("bad", 99, 1)])]);
    assert!(ads.answer().error_detail.is_some());
    assert_eq!(limit(&weir.client(), "k"), 7);
    assert_eq!(weir.metric("weir_xds_rules_from_cache", &[]), 0);
}

/// Rules of the cache must not hide that the server does not know this node. The instance is ready.
#[test]
fn a_silent_server_is_logged_despite_a_cache() {
    let cache = Cache::new();
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let weir = cache.with(ads.address).start();
    assert!(ads.answer().error_detail.is_none());
    let address = stop(weir, ads);
    let silent = Ads::again_at(address);
    let mut weir = cache
        .with(address)
        .env("WEIR__RULES__XDS__CONNECT_TIMEOUT", "1s")
        .env("WEIR__READYZ__REQUIRE_RULES", "current")
        .start();
    assert!(silent.next_request().request.response_nonce.is_empty());
    wait_for_silence(&mut weir);
    assert!(is_ready(&weir));
    assert_eq!(limit(&weir.client(), "k"), 5);
}

#[test]
fn an_unusable_cache_is_no_cache() {
    let cache = Cache::new();
    let ads = Ads::start();
    let unusable = |setup: Setup| {
        let mut weir = setup.start();
        weir.process().wait_for("why", |line| line.contains("xDS cache not read").then_some(()));
        assert!(!is_ready(&weir));
    };
    write(&cache.path(), "weir-xds-cache 1 0 0\n");
    unusable(cache.with(ads.address));
    ads.set("1", one_limit(5));
    let weir = cache.with(ads.address).start();
    assert!(ads.answer().error_detail.is_none());
    let address = stop(weir, ads);
    // The same rules may be wrong for another node.
    unusable(cache.with(address).env("WEIR__RULES__XDS__NODE_ID", "other"));
}

/// The disk must not delay the answer.
#[test]
fn rules_are_active_without_a_written_cache() {
    let cache = Cache::new();
    // A file cannot replace a folder.
    std::fs::create_dir(cache.path()).expect("a folder");
    let ads = Ads::start();
    ads.set("1", one_limit(5));
    let mut weir = cache.with(ads.address).start();
    assert!(ads.answer().error_detail.is_none());
    assert_eq!(limit(&weir.client(), "k"), 5);
    weir.process()
        .wait_for("the failure", |line| line.contains("xDS cache not written").then_some(()));
    assert_eq!(weir.metric("weir_xds_cache_current", &[]), 0);
}

#[test]
fn commands_read_the_cache() {
    let cache = Cache::new();
    let folder = cache.0.path();
    let ads = Ads::start();
    ads.set("7", one_limit(5));
    let _weir = cache.with(ads.address).start();
    until("the cache is written", || cache.path().exists());
    write(&folder.join("f.yaml"), "domain: f\n");
    let explain = ["explain", "--rules", "f.yaml", "--xds", "rules", "--domain", "a", "k=x"];
    let shown = run(folder, &explain);
    assert!(shown.stdout.contains("xds:a version 7"), "{shown:?}");
    let checked = run(folder, &["check", "f.yaml", "--xds", "rules"]);
    assert!(checked.stdout.starts_with("ok: 1 rule in 2 files"), "{checked:?}");
    let checked = run(folder, &["check", "f.yaml", "--xds", "f.yaml"]);
    assert!(checked.stderr.contains("f.yaml: it is not a cache of weir"), "{checked:?}");
}
