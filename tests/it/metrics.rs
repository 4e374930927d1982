//! The metrics: the format of the page, the documentation, and the names of envoyproxy/ratelimit.

use std::collections::BTreeSet;

use crate::page_commands::text::pages;
use crate::support::http::get;
use crate::support::metrics_page::Page;
use crate::support::rls::{RateLimitDescriptor, RateLimitOverride, costing, descriptor, request};
use crate::support::weir::{Setup, Weir};
use crate::support::window_edge::within_an_hour;

const DOCUMENTATION: &str = include_str!("../../docs/reference/metrics.md");

const RULES: &str = r#"
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 10 }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: detailed
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - { key: a, value: b_c, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: a_b, value: c, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - key: one
    descriptors:
      - key: two
        value: x
        descriptors:
          - { key: three, rate_limit: { unit: hour, requests_per_unit: 10 } }
"#;

/// Every metric of weir that a page names has a row in docs/reference/metrics.md, with its labels.
#[test]
fn pages_name_documented_metrics() {
    let mut found = 0;
    for page in pages() {
        for name in page.text.split('`').filter(|word| word.starts_with("weir_")) {
            let (family, labels) = name.split_once('{').unwrap_or((name, ""));
            // A family of metrics, such as `weir_leased_*`.
            if family.ends_with('*') {
                continue;
            }
            let row = DOCUMENTATION.lines().find(|line| line.contains(&format!("| `{family}` |")));
            let row = row.unwrap_or_else(|| panic!("{}: {name} has no row", page.name));
            for label in labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()) {
                let label = label.split(['=', '!']).next().unwrap_or_default();
                assert!(row.contains(&format!("`{label}`")), "{}: {name}: {label}", page.name);
            }
            found += 1;
        }
    }
    assert!(found >= 50, "only {found} metrics were found");
}

/// Sends requests with every kind of outcome.
fn send_requests(weir: &Weir) {
    let client = weir.client();
    let requests = [
        vec![descriptor(&[("user", "ann")])],
        vec![costing(9, descriptor(&[("user", "ann")]))],
        vec![descriptor(&[("user", "ann")])],
        vec![costing(2, descriptor(&[("shadow", "s")]))],
        vec![descriptor(&[("detailed", "v\"\\\n1")])],
        vec![descriptor(&[("detailed", "v2")]), descriptor(&[("detailed", "v2")])],
        vec![descriptor(&[("a", "b_c")]), descriptor(&[("a_b", "c")])],
        vec![descriptor(&[("one", "1"), ("two", "x"), ("three", "3")])],
        vec![descriptor(&[("nothing", "x")])],
    ];
    for descriptors in requests {
        client.check(request("d", descriptors));
    }
}

fn setup() -> Setup {
    Weir::setup().rules("d.yaml", RULES)
}

fn page(weir: &Weir) -> String {
    get(weir.admin, "/metrics").body
}

/// Every setting that adds metrics, and a Redis that is absent.
fn everything() -> Setup {
    setup()
        .env("WEIR__METRICS__ENVOY_RATELIMIT_NAMES", "true")
        .env("WEIR__METRICS__TOP", "true")
        .env("WEIR__TRACING__ENABLED", "true")
        .env("WEIR__LOG__DECISIONS__PATH", "stdout")
        .env("WEIR__STORE__KIND", "redis")
        .env("WEIR__REDIS__URL", "redis://127.0.0.1:1")
        .env("WEIR__PLANS__SOURCE", "redis")
        .env("WEIR__RULES__XDS__SERVER", "127.0.0.1:1")
        .env("WEIR__RULES__START_WITHOUT_RULES", "true")
}

#[test]
fn the_documentation_has_every_metric_and_no_other() {
    let weir = everything().start();
    send_requests(&weir);
    let exposed: BTreeSet<String> = Page::read(&page(&weir)).names();
    let rows = DOCUMENTATION.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name.to_owned(), cells[2].to_owned(), cells[3].replace(['`', ' '], "")))
    });
    let rows: Vec<(String, String, String)> = rows.collect();
    let documented: BTreeSet<String> = rows.iter().map(|row| row.0.clone()).collect();
    assert_eq!(documented.len(), rows.len(), "a metric has two rows");
    let missing: Vec<_> = exposed.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&exposed).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");

    let pages = [page(&weir), {
        let memory = setup().env("WEIR__METRICS__TOP", "true").start();
        send_requests(&memory);
        page(&memory)
    }];
    for text in &pages {
        let page = Page::read(text);
        for (name, kind, labels) in &rows {
            let Some(shown) = page.kind(name) else { continue };
            assert_eq!(shown, kind, "{name}");
            for label in page.labels(name) {
                let known = labels.split(',').any(|known| known == label) || label == "le";
                assert!(known, "{name} has a label {label} that its row lacks");
            }
        }
    }
}

#[test]
fn the_page_keeps_the_format_and_the_naming_rules() {
    within_an_hour(|| {
        for (setup, compat) in [(setup(), false), (everything(), true)] {
            let weir = setup.start();
            send_requests(&weir);
            let page = Page::read(&page(&weir));
            page.check();
            page.check_names_of_weir();
            assert_eq!(page.names().iter().any(|name| name.starts_with("ratelimit_")), compat);
        }
    });
}

/// Every decision has one outcome, and no two rules share a label.
#[test]
fn decisions_have_one_outcome_and_one_label() {
    within_an_hour(|| {
        let weir = setup().start();
        send_requests(&weir);
        let text = page(&weir);
        let page = Page::read(&text);
        for (rule, outcome, decisions) in [
            ("per-user", "within", 1.0),
            ("per-user", "near", 1.0),
            ("per-user", "over", 1.0),
            ("shadow", "shadow", 1.0),
            ("detailed", "near", 2.0),
            ("detailed", "over", 1.0),
            ("a=b_c", "within", 1.0),
            ("a_b=c", "within", 1.0),
            ("one,two=x,three", "within", 1.0),
        ] {
            let labels = [("domain", "d"), ("rule", rule), ("outcome", outcome)];
            assert_eq!(page.value("weir_decisions_total", &labels), Some(decisions), "{rule}");
        }
        assert_eq!(page.sum("weir_decisions_total", &[]), 10.0, "as many as descriptors");
        let hits = [("rule", "per-user"), ("outcome", "near")];
        assert_eq!(page.sum("weir_hits_total", &hits), 9.0);
        let detailed = |value: &str| {
            page.sum(
                "weir_detailed_decisions_total",
                &[("descriptor", &format!("detailed={value}"))],
            )
        };
        assert_eq!([detailed("v\"\\\\\n1"), detailed("v2")], [1.0, 2.0], "{text}");
        assert_eq!(page.value("weir_detailed_series", &[]), Some(2.0));
        assert_eq!(page.value("weir_request_duration_seconds_count", &[]), Some(9.0));
    });
}

#[test]
fn values_over_the_bound_count_as_overflow() {
    within_an_hour(|| {
        let weir = setup().env("WEIR__METRICS__MAX_SERIES", "3").start();
        let client = weir.client();
        for user in 0..50 {
            client.check(request("d", vec![descriptor(&[("detailed", &format!("u{user}"))])]));
        }
        let text = page(&weir);
        let page = Page::read(&text);
        let of = |labels: &[(&str, &str)]| page.sum("weir_detailed_decisions_total", labels);
        assert_eq!((of(&[]), of(&[("descriptor", "overflow")])), (50.0, 47.0));
        assert_eq!(page.value("weir_detailed_series", &[]), Some(3.0));
        assert_eq!(page.value("weir_detailed_overflow_decisions_total", &[]), Some(47.0));
        assert_eq!(page.sum("weir_decisions_total", &[("rule", "detailed")]), 50.0);
    });
}

#[test]
fn unchanged_rules_keep_counting_after_a_reload() {
    within_an_hour(|| {
        let mut weir = setup().start();
        send_requests(&weir);
        let before = page(&weir);
        let rules = weir.rules_folder().join("d.yaml");
        std::fs::write(&rules, "domain: d\ndescriptors: [{ key: user, rate_limit: ").unwrap();
        weir.process().signal("HUP");
        weir.process().wait_for("that the rules are bad", |line| {
            line.contains("rules not reloaded").then_some(())
        });
        let bad = page(&weir);
        let value = |text: &str, name: &str| Page::read(text).value(name, &[]);
        assert_eq!(value(&bad, "weir_rules_last_reload_successful"), Some(0.0));
        let loaded = "weir_rules_loaded_timestamp_seconds";
        assert_eq!(value(&bad, loaded), value(&before, loaded), "the old ones stay active");

        let fewer = RULES.split("  - key: shadow").next().unwrap();
        std::fs::write(&rules, fewer).unwrap();
        weir.process().signal("HUP");
        weir.process()
            .wait_for("that they are good", |line| line.contains("rules reloaded").then_some(()));
        let good = page(&weir);
        assert_eq!(value(&good, "weir_rules_last_reload_successful"), Some(1.0));
        assert!(value(&good, loaded) > value(&before, loaded));
        let good = Page::read(&good);
        for (result, count) in [("ok", 1.0), ("failed", 1.0)] {
            let labels = [("result", result)];
            assert_eq!(good.value("weir_rules_reloads_total", &labels), Some(count));
        }
        assert_eq!(good.sum("weir_decisions_total", &[("rule", "per-user")]), 3.0);
        assert_eq!(good.sum("weir_decisions_total", &[]), 3.0, "removed rules have no series");
    });
}

/// Unknown domains, limits from requests, and requests that only global shadow mode let pass.
#[test]
fn envoy_ratelimit_metrics_cover_every_request() {
    within_an_hour(|| {
        let setup = setup().env("USE_PROMETHEUS", "true").env("PROMETHEUS_ADDR", "127.0.0.1:0");
        let setup = setup.env("SHADOW_MODE", "true").env("WEIR__METRICS__MAX_SERIES", "2");
        let weir = setup.start();
        let client = weir.client();
        for domain in ["no.such-domain", "other", "third"] {
            let both = ["1", "2"].map(|value| descriptor(&[("a", value)]));
            client.check(request(domain, both.to_vec()));
        }
        let limit = RateLimitOverride { requests_per_unit: 2, unit: 3 };
        let entries = descriptor(&[("user", "ann"), ("plan", "b")]);
        let sent = RateLimitDescriptor { limit: Some(limit), ..entries };
        for _ in 0..3 {
            client.check(request("d", vec![sent.clone()]));
        }
        let text = page(&weir);
        let page = Page::read(&text);
        page.check();
        let not_found = |domain: &str| {
            let name = format!("ratelimit_service_rate_limit_{domain}_domain_not_found");
            page.value(&name, &[])
        };
        let found = ["no_such_domain", "other", "third"].map(not_found);
        assert_eq!(found, [Some(2.0), Some(2.0), None], "at most metrics.max_series: {text}");
        let labels = [("domain", "d"), ("key1", "user_ann"), ("key2", "plan_b")];
        let names = ["total_hits", "within_limit", "near_limit", "over_limit", "shadow_mode"];
        let hits = names.map(|name| {
            page.value(&format!("ratelimit_service_rate_limit_{name}"), &labels).unwrap_or(-1.0)
        });
        assert_eq!(hits, [3.0, 2.0, 1.0, 1.0, 0.0], "{text}");
        assert_eq!(page.value("ratelimit_service_global_shadow_mode", &[]), Some(1.0));
    });
}

#[test]
fn envoy_ratelimit_metrics_have_its_labels() {
    within_an_hour(|| {
        let weir = setup().env("USE_PROMETHEUS", "true").env("PROMETHEUS_ADDR", "127.0.0.1:0");
        let mut weir = weir.env("PROMETHEUS_PATH", "/m").start();
        send_requests(&weir);
        let _ = weir.client().try_check(request("", vec![]));
        let scraped = weir.process().wait_for("where metrics are", |line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line["metrics"].as_str()?.parse().ok()
        });
        assert_eq!(get(scraped, "/rules").status, 404, "only metrics are there");
        assert_eq!(get(scraped, "/metrics").status, 404, "and only at their path");
        let text = get(scraped, "/m").body;
        let page = Page::read(&text);
        let hits = |name: &str, key1: &str| {
            let name = format!("ratelimit_service_rate_limit_{name}");
            page.sum(&name, &[("domain", "d"), ("key1", key1)])
        };
        let five = ["total_hits", "within_limit", "near_limit", "over_limit", "shadow_mode"];
        for (key1, numbers) in [
            ("user", [11.0, 10.0, 2.0, 1.0, 0.0]),
            ("shadow", [2.0, 0.0, 1.0, 1.0, 1.0]),
            ("detailed_v2", [2.0, 1.0, 1.0, 1.0, 0.0]),
            ("a_b_c", [2.0, 2.0, 0.0, 0.0, 0.0]),
        ] {
            assert_eq!(five.map(|name| hits(name, key1)), numbers, "{key1}: {text}");
        }
        let deep = [("domain", "d"), ("key1", "one"), ("key2", "two_x")];
        assert_eq!(page.value("ratelimit_service_rate_limit_total_hits", &deep), Some(1.0));
        let method = [("grpc_method", "ShouldRateLimit")];
        assert_eq!(page.value("ratelimit_service_total_requests", &method), Some(10.0));
        let count = "ratelimit_service_response_time_seconds_count";
        assert_eq!(page.value(count, &method), Some(9.0));
        let errors = [("err_type", "service_error")];
        assert_eq!(page.value("ratelimit_service_should_rate_limit_error", &errors), Some(1.0));
        assert_eq!(page.value("ratelimit_service_config_load_success", &[]), Some(1.0));
        assert_eq!(page.value("ratelimit_service_config_load_error", &[]), Some(0.0));
    });
}
