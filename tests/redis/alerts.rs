//! The chart's alerts and dashboard, and the metrics of docs/operate/watch.md: weir exposes every metric
//! and label that they use.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::http::get;
use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rls::{costing, descriptor, request};
use crate::support::schedule::shared;
use crate::support::wait::until;

const ALERTS: &str = include_str!("../../helm/weir/files/alerts.yaml");
const DASHBOARD: &str = include_str!("../../helm/weir/files/dashboard.json");
const WATCH: &str = include_str!("../../docs/operate/watch.md");

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: team
    rate_limit: { unit: hour, requests_per_unit: 5, mode: synced, sync_interval: 50ms }
  - key: windows
    rate_limit:
      tiers:
        - { requests: 20, window: 1s }
        - { requests: 20, window: 1m }
        - { requests: 20, window: 1h }
        - { requests: 20, window: 1d }
";

/// Labels that Prometheus adds to each sample.
const OF_THE_TARGET: [&str; 4] = ["namespace", "job", "pod", "instance"];

/// The labels of one series.
type Labels = BTreeMap<String, String>;

/// The series of each metric of a scrape. A metric without events has none.
fn scraped(text: &str) -> BTreeMap<String, Vec<Labels>> {
    let mut found: BTreeMap<String, Vec<Labels>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let name = kind.split(' ').next().expect("a name");
            let ends: &[&str] = match kind.ends_with("histogram") {
                true => &["_bucket", "_sum", "_count"],
                false => &[""],
            };
            for end in ends {
                found.entry(format!("{name}{end}")).or_default();
            }
        } else if !line.starts_with('#') {
            let (series, _) = line.rsplit_once(' ').expect("a series and its value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let matchers = matchers(labels.trim_end_matches('}'));
            let labels = matchers.into_iter().map(|(name, _, value)| (name, value)).collect();
            found.get_mut(name).expect("a series has a TYPE before it").push(labels);
        }
    }
    found
}

/// The parts of `a="b",c=~"d"`: names, operators, values.
fn matchers(text: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(',');
    while let Some((before, after)) = rest.split_once('"') {
        let at = before.find(['=', '!']).expect("an operator before a value");
        let (value, tail) = after.split_once('"').expect("a value ends");
        found.push((before[..at].to_owned(), before[at..].to_owned(), value.to_owned()));
        rest = tail.trim_start_matches(',');
    }
    found
}

/// Every expression with its place.
fn expressions() -> Vec<(String, String)> {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
            found.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        if let Some(query) = variable["query"].as_str().filter(|query| query.contains("weir_")) {
            // Treat `label_values(series, label)` as a sum by that label.
            let inside = query.trim_start_matches("label_values(").trim_end_matches(')');
            let (series, label) = inside.rsplit_once(", ").expect("a series and a label");
            found.push((query.to_owned(), format!("sum by ({label}) ({series})")));
        }
    }
    for alert in ALERTS.split("- alert: ").skip(1) {
        let name = alert.lines().next().expect("a name").to_owned();
        let (_, rest) = alert.split_once("expr:").expect("an expression");
        let end = rest.find("\n        for:").or(rest.find("\n        labels:"));
        found.push((name, rest[..end.expect("something follows")].to_owned()));
    }
    found.extend(watched());
    found
}

/// The rows of the table in docs/operate/watch.md: what each shows, and its expression.
fn watched() -> Vec<(String, String)> {
    let cells = WATCH.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `"));
    let rows = cells.filter_map(|(shows, rest)| Some((shows, rest.split_once('`')?.0)));
    let rows = rows.filter(|(_, expression)| expression.contains("weir_"));
    let rows: Vec<_> = rows.map(|(shows, text)| (shows.to_owned(), text.to_owned())).collect();
    assert_eq!(rows.len(), 10, "{rows:?}");
    rows
}

/// The metrics of an expression, each with the text in its braces.
fn metrics(expression: &str) -> Vec<(&str, &str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for start in ["weir_", "process_", "ratelimit_"] {
        for (at, _) in expression.match_indices(start) {
            if expression[..at].ends_with(is_word) {
                continue;
            }
            let rest = &expression[at..];
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let braces = rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
            found.push((&rest[..end], braces.map_or("", |(inside, _)| inside)));
        }
    }
    found
}

/// The labels that an expression groups by.
fn groups(expression: &str) -> BTreeSet<&str> {
    let lists = expression.split(" by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(", ")).map(str::trim).collect()
}

/// Makes one decision of each kind: allowed, denied, and by fallback without Redis, where an
/// exchange fails too. Then a scrape has every series.
#[test]
fn alerts_and_dashboard_use_existing_metrics() {
    let _permit = shared();
    let mut redis = Server::listening(&[]);
    let url = format!("redis://{}", redis.address());
    let weir = over(&url, RULES)
        .env("WEIR__METRICS__TOP", "true")
        // No server listens on port 1 of loopback.
        .env("WEIR__RULES__XDS__SERVER", "127.0.0.1:1")
        .env("WEIR__RULES__START_WITHOUT_RULES", "true")
        .start();
    ready(&weir);
    let client = weir.client();
    let check = |user, hits| {
        let all = ["user", "team", "windows"].map(|key| costing(hits, descriptor(&[(key, user)])));
        client.check(request("d", all.into()));
    };
    for hits in [1, 6, 6] {
        check("x", hits);
    }
    redis.kill();
    let scrape = || get(weir.admin, "/metrics").body;
    until("errors of Redis and a fallback are counted", || {
        check("y", 1);
        let page = scrape();
        ["weir_redis_step_errors_total{", "weir_synced_errors_total{", "weir_fallback_total{"]
            .iter()
            .all(|name| page.contains(name))
    });
    let exposed = scraped(&scrape());
    let expressions = expressions();
    assert!(expressions.len() > 40, "only {} expressions were found", expressions.len());
    let wrong: Vec<String> =
        expressions.iter().flat_map(|(place, text)| problems(place, text, &exposed)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn problems(place: &str, expression: &str, exposed: &BTreeMap<String, Vec<Labels>>) -> Vec<String> {
    let of_target = |label: &str| OF_THE_TARGET.contains(&label);
    let mut wrong = Vec::new();
    let mut labels: BTreeSet<&str> = BTreeSet::new();
    let named = metrics(expression);
    if named.is_empty() {
        wrong.push(format!("{place}: no metric in {expression}"));
    }
    for (metric, braces) in named {
        let Some(series) = exposed.get(metric) else {
            wrong.push(format!("{place}: weir has no {metric}"));
            continue;
        };
        let wanted = matchers(braces);
        let fits = |series: &&Labels| {
            wanted.iter().filter(|(label, ..)| !of_target(label)).all(|(label, operator, value)| {
                let found = series.get(label);
                found.is_some_and(|found| operator != "=" || found == value)
            })
        };
        if !series.iter().any(|one| fits(&one)) {
            wrong.push(format!("{place}: no series of {metric} has {braces}"));
        }
        labels.extend(series.iter().flat_map(|one| one.keys().map(String::as_str)));
    }
    for label in groups(expression) {
        if !of_target(label) && !labels.contains(label) {
            wrong.push(format!("{place}: nothing in {expression} has a label {label}"));
        }
    }
    wrong
}

#[test]
fn a_missing_metric_or_label_is_found() {
    let page = "# TYPE weir_x_total counter\nweir_x_total{a=\"1\",b=\"x y\"} 3\n\
                # TYPE weir_y_seconds histogram\nweir_y_seconds_bucket{le=\"+Inf\"} 1\n";
    let exposed = scraped(page);
    let wrong = |expression: &str| problems("here", expression, &exposed).len();
    for good in [
        r#"sum by (a, job) (rate(weir_x_total{job=~"$job",a="1",b=~".*"}[5m]))"#,
        "histogram_quantile(0.9, sum by (le) (rate(weir_y_seconds_bucket[5m])))",
    ] {
        assert_eq!(wrong(good), 0, "{good}");
    }
    for bad in [
        "rate(weir_z_total[5m])",
        r#"weir_x_total{a="2"}"#,
        r#"weir_x_total{c=~".*"}"#,
        "sum by (c) (weir_x_total)",
        "rate(weir_y_seconds[5m])",
        "vector(1)",
    ] {
        assert_eq!(wrong(bad), 1, "{bad}");
    }
}
