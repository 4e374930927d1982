//! Rules that change while weir serves: in every common layout, on SIGHUP, and under load.

use std::fs::{create_dir_all, remove_dir_all, remove_file, rename};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tempfile::TempDir;

use crate::support::http::get;
use crate::support::rls::{Client, costing, descriptor, request};
use crate::support::wait::until;
use crate::support::weir::{Weir, write};
use crate::support::window_edge::within_an_hour;

/// A file of domain `d` that limits `key` to `limit` per hour.
fn rules(key: &str, limit: u64) -> String {
    format!(
        "domain: d\ndescriptors:\n  - key: {key}\n    rate_limit: {{ unit: hour, \
         requests_per_unit: {limit} }}\n"
    )
}

/// The active limits of `keys`, from one response; 0 without one.
fn limits(client: &Client, keys: &[&str]) -> Vec<u64> {
    let peeks = keys.iter().map(|key| costing(0, descriptor(&[(key, "x")]))).collect();
    let answer = client.check(request("d", peeks));
    let limit = |status: &crate::support::rls::DescriptorStatus| {
        status.current_limit.as_ref().map_or(0, |limit| u64::from(limit.requests_per_unit))
    };
    answer.statuses.iter().map(limit).collect()
}

fn until_limit(client: &Client, limit: u64) {
    until(&format!("a limit of {limit}"), || limits(client, &["a"]) == [limit]);
}

/// Version `number` of a mounted ConfigMap, installed as the kubelet does.
fn mount(folder: &Path, number: u64, files: &[(&str, String)]) {
    let version = format!("..2026_{number}");
    create_dir_all(folder.join(&version)).expect("a folder");
    for (name, text) in files {
        write(&folder.join(&version).join(name), text);
        let link = folder.join(name);
        if link.symlink_metadata().is_err() {
            symlink(Path::new("..data").join(name), link).expect("a link");
        }
    }
    let _ = remove_file(folder.join("..data_tmp"));
    symlink(&version, folder.join("..data_tmp")).expect("a link");
    rename(folder.join("..data_tmp"), folder.join("..data")).expect("a rename");
    let _ = remove_dir_all(folder.join(format!("..2026_{}", number - 1)));
    // Links of removed files are deleted last.
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        if !entry.path().exists() {
            remove_file(entry.path()).expect("a link");
        }
    }
}

fn last_error(weir: &Weir) -> Option<String> {
    get(weir.admin, "/rules").json()["last_error"].as_str().map(str::to_owned)
}

#[test]
fn a_swapped_config_map_is_loaded() {
    let folder = TempDir::new().expect("a temporary folder");
    mount(folder.path(), 1, &[("a.yaml", rules("a", 1))]);
    let weir = Weir::setup().rules_at(folder.path()).start();
    let client = weir.client();
    assert_eq!(limits(&client, &["a"]), [1]);
    for version in 2..5 {
        mount(folder.path(), version, &[("a.yaml", rules("a", version))]);
        until_limit(&client, version);
    }
    assert_eq!(weir.metric("weir_rules_reloads_total", &[r#"result="ok""#]), 3);
    assert_eq!(weir.metric("weir_rules_reloads_total", &[r#"result="failed""#]), 0);
}

/// Overlays are watched like rule files, also outside the folder of the rules.
#[test]
fn a_changed_overlay_is_loaded() {
    let overlay = |rule: &str, requests: u64| {
        let limit = format!("{{ tiers: [{{ requests: {requests}, window: 1h }}] }}");
        format!("overlays:\n  - {{ domain: d, rule: {rule}, rate_limit: {limit} }}\n")
    };
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("overlays.yaml");
    write(&path, &overlay("a", 5));
    let weir = Weir::setup()
        .rules("rules.yaml", &rules("a", 1))
        .env("WEIR__RULES__OVERLAY_PATHS", path.to_str().expect("a plain path"))
        .start();
    let client = weir.client();
    assert_eq!(limits(&client, &["a"]), [5]);
    write(&path, &overlay("a", 6));
    until_limit(&client, 6);
    write(&path, "overlays: [");
    until("an error", || last_error(&weir).is_some_and(|error| error.contains("overlays.yaml:")));
    assert_eq!(limits(&client, &["a"]), [6], "the overlay before stays");
    write(&path, &overlay("b", 7));
    until_limit(&client, 1);
    let page = get(weir.admin, "/rules").json();
    let warning = page["warnings"][0].as_str().expect("a warning");
    assert!(warning.contains("overlays.yaml:2:5: the overlay matches no limit"), "{warning}");
}

/// The layouts of envoyproxy/ratelimit are watched whatever its watch settings say.
#[test]
fn envoy_ratelimit_layouts_are_watched() {
    for watch_root in ["true", "false"] {
        let folder = TempDir::new().expect("a temporary folder");
        let root = folder.path();
        // Version 1 by a root link, as with RUNTIME_WATCH_ROOT.
        for version in 1..3 {
            create_dir_all(root.join(format!("v{version}/rl/config"))).expect("folders");
            let file = root.join(format!("v{version}/rl/config/a.yaml"));
            write(&file, &rules("a", version));
        }
        symlink("v1", root.join("current")).expect("a link");
        let weir = Weir::setup()
            .rules_of_settings()
            .env("RUNTIME_ROOT", root.join("current").to_str().expect("a plain path"))
            .env("RUNTIME_SUBDIRECTORY", "rl")
            .env("RUNTIME_WATCH_ROOT", watch_root)
            .env("RUNTIME_IGNOREDOTFILES", "true")
            .start();
        let client = weir.client();
        assert_eq!(limits(&client, &["a"]), [1]);
        symlink("v2", root.join("next")).expect("a link");
        rename(root.join("next"), root.join("current")).expect("a rename");
        until_limit(&client, 2);
        // A file that is edited in place, as with RUNTIME_WATCH_ROOT=false.
        write(&root.join("current/rl/config/a.yaml"), &rules("a", 3));
        until_limit(&client, 3);
        // A subfolder, and a ConfigMap that replaces the folder.
        create_dir_all(root.join("v2/rl/config/team")).expect("a folder");
        remove_file(root.join("v2/rl/config/a.yaml")).expect("the path exists");
        write(&root.join("v2/rl/config/team/a.yaml"), &rules("a", 4));
        until_limit(&client, 4);
        create_dir_all(root.join("map")).expect("a folder");
        mount(&root.join("map"), 1, &[("a.yaml", rules("a", 5))]);
        rename(root.join("v2/rl/config"), root.join("old")).expect("a rename");
        rename(root.join("map"), root.join("v2/rl/config")).expect("a rename");
        until_limit(&client, 5);
        mount(&root.join("v2/rl/config"), 2, &[("a.yaml", rules("a", 6))]);
        until_limit(&client, 6);
    }
}

/// Two files that must change together are swapped by one link without a pause, while the rules are
/// reloaded all the time and clients send both keys in one request.
#[test]
fn a_reload_under_load_is_atomic() {
    const LAST: u64 = 300;
    let folder = TempDir::new().expect("a temporary folder");
    let set = |version| [("a.yaml", rules("a", version)), ("b.yaml", rules("b", version))];
    mount(folder.path(), 1, &set(1));
    let setup = Weir::setup().rules_at(folder.path()).env("WEIR__RULES__MERGE_DOMAINS", "true");
    let mut weir = setup.start();
    let over = AtomicBool::new(false);
    let (calls, versions) = (AtomicU64::new(0), AtomicU64::new(0));
    let grpc = weir.grpc;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = Client::connect(grpc);
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    // A failed call fails the test.
                    let found = limits(&client, &["a", "b"]);
                    assert_eq!(found[0], found[1], "one answer of two sets");
                    assert!(found[0] >= last, "{} after {last}", found[0]);
                    versions.fetch_add(u64::from(found[0] > last), Ordering::Relaxed);
                    last = found[0];
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                assert_eq!(last, LAST);
            });
        }
        // No wait between the swaps, so that reloads and swaps overlap.
        for version in 2..=LAST {
            mount(folder.path(), version, &set(version));
            if version % 4 == 0 {
                weir.process().signal("HUP");
            }
        }
        let client = Client::connect(grpc);
        until("the last rule set is active", || limits(&client, &["a", "b"]) == [LAST, LAST]);
        let so_far = calls.load(Ordering::Relaxed);
        until("every client has a response from it", || calls.load(Ordering::Relaxed) > so_far + 6);
        over.store(true, Ordering::Relaxed);
    });
    let seen = versions.load(Ordering::Relaxed) / 3;
    println!("{} calls saw {seen} of {LAST} sets", calls.load(Ordering::Relaxed));
    assert!(seen > 2, "the rules hardly changed under the load: {seen}");
    assert_eq!(last_error(&weir), None);
}

/// A bad rule set changes nothing and is reported until it is corrected.
#[test]
fn a_bad_rule_set_is_reported_and_not_used() {
    let setup = Weir::setup().rules("a.yaml", &rules("a", 1));
    let weir = setup.env("WEIR__READYZ__REQUIRE_RULES", "current").start();
    let client = weir.client();
    assert_eq!(get(weir.http, "/readyz").status, 200);
    let bad = |name: &str, field: &str| {
        let file = weir.rules_folder().join(name);
        write(&file, &format!("domain: {name}\ndescriptors:\n  - {field}: x\n"));
    };
    bad("b.yaml", "kye");
    bad("c.yaml", "valeu");
    // Both problems are in one message.
    until("the error names both files", || {
        last_error(&weir)
            .is_some_and(|error| error.contains("b.yaml:3:5") && error.contains("c.yaml:3:5"))
    });
    assert_eq!(limits(&client, &["a"]), [1], "the active rules stay");
    assert_eq!(weir.metric("weir_rules_last_reload_successful", &[]), 0);
    assert!(weir.metric("weir_rules_reloads_total", &[r#"result="failed""#]) > 0);
    until("readiness follows the setting", || get(weir.http, "/readyz").status == 503);
    assert_eq!(get(weir.http, "/livez").status, 200);
    // The active rules again: valid.
    for name in ["b.yaml", "c.yaml"] {
        remove_file(weir.rules_folder().join(name)).expect("the path exists");
    }
    until("the corrected rules are loaded", || last_error(&weir).is_none());
    assert_eq!(weir.metric("weir_rules_last_reload_successful", &[]), 1);
    until("the instance is ready again", || get(weir.http, "/readyz").status == 200);
    assert_eq!(limits(&client, &["a"]), [1]);
}

#[test]
fn readiness_ignores_failing_rules_by_default() {
    for (required, status) in [("off", 200), ("loaded", 503), ("current", 503)] {
        let weir = Weir::setup().env("WEIR__READYZ__REQUIRE_RULES", required).start();
        assert_eq!(get(weir.http, "/readyz").status, status, "{required}, without rules");
        write(&weir.rules_folder().join("a.yaml"), &rules("a", 1));
        until_limit(&weir.client(), 1);
        until("ready with rules", || get(weir.http, "/readyz").status == 200);
        write(&weir.rules_folder().join("b.yaml"), "domain: [");
        until("the bad file is reported", || last_error(&weir).is_some());
        let now = if required == "current" { 503 } else { 200 };
        until(required, || get(weir.http, "/readyz").status == now);
    }
}

/// Missing files do not remove limits. An empty domain and SIGHUP do.
#[test]
fn missing_files_do_not_remove_limits() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("mount");
    create_dir_all(&path).expect("a folder");
    mount(&path, 1, &[("a.yaml", rules("a", 1))]);
    let mut weir = Weir::setup().rules_at(&path).start();
    let client = weir.client();
    let refused = |weir: &Weir, why: &str| {
        until(why, || last_error(weir).is_some_and(|error| error.contains("SIGHUP")));
        assert_eq!(limits(&client, &["a"]), [1], "{why}: the active rules stay");
    };
    mount(&path, 2, &[]);
    refused(&weir, "an empty ConfigMap");
    mount(&path, 3, &[("a.yaml", rules("a", 1))]);
    until("the restored files are loaded", || last_error(&weir).is_none());
    remove_dir_all(&path).expect("the path exists");
    refused(&weir, "a removed folder");
    create_dir_all(&path).expect("a folder");
    write(&path.join("a.yaml"), "domain: d\n");
    until_limit(&client, 0);
    assert_eq!(last_error(&weir), None);

    write(&path.join("a.yaml"), &rules("a", 2));
    until_limit(&client, 2);
    remove_file(path.join("a.yaml")).expect("the path exists");
    until("the removed file is reported", || last_error(&weir).is_some());
    assert_eq!(limits(&client, &["a"]), [2]);
    weir.process().signal("HUP");
    until_limit(&client, 0);
    assert_eq!(last_error(&weir), None);
    // From no rules to one.
    write(&path.join("a.yaml"), &rules("a", 3));
    until_limit(&client, 3);
}

#[test]
fn sighup_reloads_when_watching_is_off() {
    let threads = |weir: &mut Weir| -> Vec<String> {
        let tasks = format!("/proc/{}/task", weir.process().pid());
        let tasks = std::fs::read_dir(tasks).expect("a running process").flatten();
        let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")));
        names.flatten().map(|name| name.trim().to_owned()).collect()
    };
    let watcher = "weir-rules".to_owned();
    let mut watching = Weir::start(&rules("a", 1));
    // A thread names itself after its start.
    until("the watcher has its name", || threads(&mut watching).contains(&watcher));

    let setup = Weir::setup().rules("a.yaml", &rules("a", 1));
    let mut weir = setup.env("WEIR__RULES__WATCH", "false").start();
    assert!(!threads(&mut weir).contains(&watcher));
    write(&weir.rules_folder().join("a.yaml"), &rules("a", 2));
    let client = weir.client();
    assert_eq!(limits(&client, &["a"]), [1]);
    weir.process().signal("HUP");
    until_limit(&client, 2);
}

const UNLIMITED: &str = "{key: other, rate_limit: {unlimited: true}}";

/// SIGHUP reloads the rules. The next log line has the result.
#[test]
fn sighup_reloads_rules_and_keeps_counters() {
    within_an_hour(|| {
        let rules = |requests: &str| {
            format!(
                "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {{unit: hour, \
                 requests_per_unit: {requests}}}\n"
            )
        };
        let mut weir = Weir::start(&rules("1"));
        let client = weir.client();
        let check =
            || client.check(request("d", vec![descriptor(&[("user", "ann")])])).overall_code;
        let hang_up = |weir: &mut Weir, text: &str, heard: &str| {
            write(&weir.rules_folder().join("rules.yaml"), text);
            weir.process().signal("HUP");
            weir.process()
                .wait_for("how the reload went", |line| line.contains(heard).then_some(()));
        };
        assert_eq!([check(), check()], [1, 2]);
        hang_up(&mut weir, &rules("3"), "rules reloaded");
        assert_eq!([check(), check()], [1, 2], "two were counted before the reload");
        hang_up(&mut weir, &rules("many"), "rules not reloaded");
        let shown = get(weir.admin, "/rules").json();
        assert!(shown["last_error"].as_str().is_some_and(|text| text.contains("many")), "{shown}");
        assert_eq!(check(), 2, "the active rules stay");
        let two = format!("{}  - {{key: other}}\n", rules("9"));
        hang_up(&mut weir, &two.replace("{key: other}", UNLIMITED), "\"rules\":2");
        assert_eq!(get(weir.admin, "/rules").json()["last_error"], serde_json::Value::Null);
        assert_eq!(check(), 1);
    });
}

/// Many rules and one that changes: the others are in memory once, and one parsed file at a time.
#[test]
fn a_reload_of_one_rule_shares_the_others() {
    const FILES: usize = 4;
    const RULES: usize = 25_000;
    let folder = TempDir::new().expect("a temporary folder");
    let limit = "rate_limit: { unit: hour, requests_per_unit: 100 }";
    for file in 0..FILES {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        for rule in 0..RULES {
            text += &format!("- {{ key: path, value: /v1/{file}/{rule:05}, {limit} }}\n");
        }
        write(&folder.path().join(format!("{file}.yaml")), &text);
    }
    let path = folder.path().join("last.yaml");
    write(&path, &rules("a", 1));
    let mut weir =
        Weir::setup().rules_at(folder.path()).env("WEIR__RULES__MERGE_DOMAINS", "true").start();
    let client = weir.client();
    assert_eq!(limits(&client, &["a"]), [1]);
    let before = weir.process().resident_kib();
    for requests in 2..5 {
        write(&path, &rules("a", requests));
        until_limit(&client, requests);
    }
    let peak = weir.process().peak_kib();
    let grown = peak.saturating_sub(before) as f64 / before as f64;
    println!("{before} KiB after the start, {peak} KiB at most");
    assert!(grown < 0.5, "the memory of {before} KiB grew by {grown:.2} of it, to {peak} KiB");
}
