//! Usage by the admin interface: pages of counters in memory, as JSON and CSV, and the command.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::{Response, get, get_with, send};
use crate::support::rls::{Client, costing, descriptor, request};
use crate::support::weir::cli::{Run, run};
use crate::support::weir::{Setup, Weir};
use crate::support::window_edge::within_an_hour;

mod planned;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 10, usage: true }
  - key: path
    value_template: /v1/{org}/{id}
    count_by: [org]
    descriptors:
      - key: ip
        value_cidr: 10.0.0.0/8
        rate_limit:
          algorithm: sliding_window_log
          usage: true
          tiers:
            - { requests: 5, window: 1h }
            - { requests: 100, window: 24h }
  - key: all
    value: x
    rate_limit: { unit: hour, requests_per_unit: 10, usage: true }
  - key: plain
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: free
    rate_limit: { unlimited: true }
";

const USERS: &str = "/usage?domain=d&rule=user";

fn take(client: &Client, entries: &[(&str, &str)], hits: u64) {
    client.check(request("d", vec![costing(hits, descriptor(entries))]));
}

fn page(weir: &Weir, path: &str) -> Value {
    let answer = get(weir.admin, path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

/// The values of a column and the used hits of the first tier, in the order of the page.
fn rows(page: &Value, column: &str) -> Vec<(String, u64)> {
    let counters = page["counters"].as_array().expect("a list").iter();
    let row = |row: &Value| {
        let text = row["values"][column].as_str().expect("a text");
        (text.to_owned(), row["tiers"][0]["used"].as_u64().expect("a number"))
    };
    counters.map(row).collect()
}

fn error(answer: &Response) -> String {
    answer.json()["error"].as_str().unwrap_or_default().to_owned()
}

fn pair(text: &str, used: u64) -> (String, u64) {
    (text.to_owned(), used)
}

#[test]
fn counters_nearest_their_limit_come_first() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        for (user, hits) in [("ann", 3), ("bob", 10), ("cid", 1), ("dee", 3), ("eve", 0)] {
            take(&client, &[("user", user)], hits);
        }
        take(&client, &[("plain", "ann")], 5);
        let all = page(&weir, USERS);
        let expected = [pair("bob", 10), pair("ann", 3), pair("dee", 3), pair("cid", 1)];
        assert_eq!(rows(&all, "user"), expected, "{all}");
        assert_eq!((&all["rule"], &all["selector"]), (&json!("per-user"), &json!("user")));
        assert_eq!((&all["store"], &all["algorithm"]), (&json!("memory"), &json!("fixed_window")));
        assert_eq!((&all["columns"], &all["cursor"]), (&json!(["user"]), &Value::Null));
        let ann = &all["counters"][1];
        assert_eq!((&ann["share"], &ann["cut"]), (&json!(0.3), &json!(false)));
        let counter = get(weir.admin, "/counters?domain=d&descriptor=user=ann").json();
        assert_eq!(ann["counter"], counter["key"]);
        let (tier, known) = (&ann["tiers"][0], &counter["tiers"][0]);
        for name in ["requests", "used", "remaining", "window_seconds"] {
            assert_eq!(tier[name], known[name], "{name}");
        }
        let first = page(&weir, &format!("{USERS}&limit=2"));
        assert_eq!(rows(&first, "user"), expected[..2]);
        let near = page(&weir, &format!("{USERS}&min_used=3&order=name"));
        assert_eq!(rows(&near, "user"), [pair("ann", 3), pair("bob", 10), pair("dee", 3)]);
        let by_name = page(&weir, "/usage?domain=d&rule=per-user");
        assert_eq!(rows(&by_name, "user"), expected, "looking is free");
    });
}

#[test]
fn every_kind_of_rule_is_listed() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        for (path, ip) in
            [("/v1/a/1", "10.0.0.1"), ("/v1/a/2?x=y", "::ffff:10.0.0.1"), ("/v1/b/1", "10.0.0.1")]
        {
            take(&client, &[("path", path), ("ip", ip)], 1);
        }
        let rule = "path=template:/v1/%7Borg%7D/%7Bid%7D,ip=cidr:10.0.0.0/8";
        let paths = page(&weir, &format!("/usage?domain=d&rule={rule}"));
        assert_eq!(paths["columns"], json!(["path.org", "ip"]));
        let counters = paths["counters"].as_array().expect("a list");
        let values: Vec<&Value> = counters.iter().map(|row| &row["values"]).collect();
        assert_eq!(
            values,
            [
                &json!({ "path.org": "a", "ip": "10.0.0.1" }),
                &json!({ "path.org": "b", "ip": "10.0.0.1" }),
            ]
        );
        assert_eq!(counters[0]["tiers"].as_array().expect("tiers").len(), 2);
        assert_eq!(
            (&counters[0]["tiers"][0]["used"], &counters[0]["share"]),
            (&json!(2), &json!(0.4))
        );
        take(&client, &[("all", "x")], 4);
        let one = page(&weir, "/usage?domain=d&rule=all=x");
        assert_eq!((&one["columns"], &one["counters"][0]["values"]), (&json!([]), &json!({})));
        assert_eq!(one["counters"][0]["tiers"][0]["used"], 4);
    });
}

/// A deleted counter, and one that was never used, have no hits.
#[test]
fn empty_counters_are_not_listed() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        take(&client, &[("user", "ann")], 1);
        take(&client, &[("user", "bob")], 1);
        let ann = "/counters?domain=d&descriptor=user=ann";
        assert_eq!(send(weir.admin, "DELETE", ann, &[], b"").status, 200);
        assert_eq!(rows(&page(&weir, USERS), "user"), [pair("bob", 1)]);
        let all = page(&weir, &format!("{USERS}&min_used=0&order=name"));
        assert_eq!(rows(&all, "user"), [pair("ann", 0), pair("bob", 1)]);
    });
}

/// Uses the counters of users with up to 10 hits, several in one request.
fn use_many(weir: &Weir, users: u64) -> BTreeMap<String, u64> {
    let client = weir.client();
    let expected: BTreeMap<String, u64> =
        (0..users).map(|number| (format!("user-{number}"), number % 10 + 1)).collect();
    let all: Vec<(&String, &u64)> = expected.iter().collect();
    for some in all.chunks(200) {
        let descriptors =
            some.iter().map(|(user, hits)| costing(**hits, descriptor(&[("user", user.as_str())])));
        client.check(request("d", descriptors.collect()));
    }
    expected
}

/// All pages in the order `name`, as their rows.
fn all_pages(weir: &Weir, limit: usize) -> (usize, BTreeMap<String, u64>) {
    let (mut pages, mut found, mut cursor) = (0, BTreeMap::new(), String::new());
    loop {
        let page = page(weir, &format!("{USERS}&order=name&limit={limit}&cursor={cursor}"));
        let rows = rows(&page, "user");
        assert!(rows.len() <= limit && rows.is_sorted(), "{rows:?}");
        for (user, used) in rows {
            assert_eq!(found.insert(user.clone(), used), None, "{user} is on two pages");
        }
        pages += 1;
        match page["cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return (pages, found),
        }
    }
}

#[test]
fn all_pages_together_have_every_counter() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let expected = use_many(&weir, 3_000);
        for limit in [100, 1_000] {
            let (pages, found) = all_pages(&weir, limit);
            assert_eq!(found, expected, "limit {limit}");
            assert!((3_000 / limit..=3_000 / limit + 1).contains(&pages), "{pages}");
        }
        assert_eq!(weir.metric("weir_usage_names", &[]), 3_000);
    });
}

#[test]
fn csv_pages_are_appended_to_one_file() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        let users = ["=1+1", "a,b", "a\"b", "line\r\nbreak", "plain"];
        for user in users {
            take(&client, &[("user", user)], 2);
        }
        let (mut file, mut cursor) = (String::new(), String::new());
        let mut pages = 0;
        loop {
            let path = format!("{USERS}&order=name&format=csv&limit=2&cursor={cursor}");
            let answer = get(weir.admin, &path);
            assert_eq!(answer.header("content-type").as_deref(), Some("text/csv; charset=utf-8"));
            assert_eq!(answer.header("cache-control").as_deref(), Some("no-store"));
            file.push_str(&answer.body);
            pages += 1;
            match answer.header("x-weir-next-cursor") {
                Some(next) => cursor = next,
                None => break,
            }
        }
        assert_eq!(pages, 3);
        let head = "domain,rule,tier,window_seconds,requests,used,remaining,reset_after_seconds,\
                    counter,cut,value.user\r\n";
        assert!(file.starts_with(head), "{file}");
        assert_eq!(file.matches("domain,rule").count(), 1, "one head: {file}");
        for cell in ["'=1+1", "\"a,b\"", "\"a\"\"b\"", "\"line\r\nbreak\"", "plain"] {
            assert!(file.contains(&format!(",false,{cell}\r\n")), "{cell}: {file}");
        }
        assert!(file.contains("d,per-user,1,3600,10,2,8,"), "{file}");
    });
}

#[test]
fn long_values_are_cut_and_counted() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        let long = "\u{fc}".repeat(5_000);
        take(&client, &[("user", &long)], 3);
        take(&client, &[("user", &format!("{long}x"))], 5);
        let page = page(&weir, USERS);
        let found = rows(&page, "user");
        assert_eq!([found[0].1, found[1].1], [5, 3], "two counters: {page}");
        for (row, (text, _)) in [0_usize, 1].into_iter().zip(&found) {
            assert_eq!(page["counters"][row]["cut"], true);
            assert!(text.len() <= 1_024 && long.starts_with(text.as_str()), "{}", text.len());
        }
    });
}

/// The names of many clients do not take more memory than the setting permits.
#[test]
fn old_names_make_room_for_new_ones() {
    within_an_hour(|| {
        let weir =
            Weir::setup().rules("d.yaml", RULES).env("WEIR__USAGE__MAX_NAMES", "500").start();
        let expected = use_many(&weir, 2_000);
        let (_, found) = all_pages(&weir, 1_000);
        assert_eq!(found.len(), 500);
        assert!(found.iter().all(|(user, used)| expected[user] == *used), "right numbers");
        let evicted = weir.metric("weir_usage_dropped_names_total", &[r#"reason="evicted""#]);
        assert_eq!(evicted, 1_500);
    });
}

#[test]
fn a_page_that_cannot_be_read_has_a_reason() {
    let weir = Weir::start(RULES);
    for (path, status, why) in [
        ("/usage", 400, "write ?domain=D&rule=R"),
        ("/usage?domain=d", 400, "missing field `rule`"),
        ("/usage?domain=d&rule=user&order=last", 400, "unknown variant `last`"),
        ("/usage?domain=d&rule=user&limit=x", 400, "invalid digit"),
        ("/usage?domain=d&rule=user&limit=0", 400, "from 1 to 1000"),
        ("/usage?domain=d&rule=user&limit=1001", 400, "from 1 to 1000"),
        ("/usage?domain=d&rule=user&min_used=-1", 400, "invalid digit"),
        ("/usage?domain=d&rule=user&format=xml", 400, "unknown variant `xml`"),
        ("/usage?domain=d&rule=user&colour=red", 400, "unknown field `colour`"),
        ("/usage?domain=d&rule=user&cursor=nonsense", 400, "the cursor is invalid"),
        ("/usage?domain=e&rule=user", 404, "defines this domain"),
        ("/usage?domain=d&rule=users", 404, "no rule of the domain"),
        ("/usage?domain=d&rule=plain", 409, "write `usage: true` in its `rate_limit`"),
        ("/usage?domain=d&rule=free", 409, "unlimited"),
    ] {
        let answer = get(weir.admin, path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(error(&answer).contains(why), "{path}: {}", answer.body);
    }
    let of_redis = format!("{USERS}&cursor=r00{}", "0".repeat(48));
    let answer = get(weir.admin, &of_redis);
    assert_eq!(answer.status, 400);
    assert!(error(&answer).contains("of another store"), "{}", answer.body);
    let post = send(weir.admin, "POST", USERS, &[], b"");
    assert_eq!(post.status, 405, "it is only read");
}

#[test]
fn usage_needs_the_token_from_other_hosts() {
    const TOKEN: &str = "hunter2-and-more";
    let on_all = |setup: Setup| {
        setup.without_flag("--admin-listen").env("WEIR__ADMIN__LISTEN", "0.0.0.0:0").start()
    };
    let setup = || Weir::setup().rules("d.yaml", RULES);
    assert_eq!(get(on_all(setup()).admin, USERS).status, 403);
    let weir = on_all(setup().env("WEIR__ADMIN__TOKEN", TOKEN));
    for (header, status) in [("Bearer hunter2", 403), ("Bearer hunter2-and-more", 200)] {
        let answer = get_with(weir.admin, USERS, &[("authorization", header)]);
        assert_eq!(answer.status, status, "{}", answer.body);
    }
}

fn usage(weir: &Weir, args: &[&str]) -> Run {
    let addr = format!("http://{}", weir.admin);
    let words = ["usage", "--addr", &addr, "--domain", "d"];
    run(Path::new("."), &[&words[..], args].concat())
}

#[test]
fn the_command_prints_every_form() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let expected = use_many(&weir, 2_345);
        let nearest = usage(&weir, &["--rule", "per-user", "--limit", "3"]);
        assert_eq!(nearest.code, Some(0), "{nearest:?}");
        let lines: Vec<&str> = nearest.stdout.lines().collect();
        assert_eq!(lines[0], "rule per-user of domain d, fixed_window, counters in memory");
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with(" 100 %  10 of 10 per 3600 s, 0 remaining"), "{lines:?}");
        assert!(lines[1].ends_with("  user=user-1009"), "the first by name: {lines:?}");

        let csv = usage(&weir, &["--rule", "user", "--order", "name", "--format", "csv"]);
        assert_eq!(csv.stdout.lines().count(), 1 + expected.len(), "{}", csv.stderr);
        let json = usage(&weir, &["--rule", "user", "--order", "name", "--format", "json"]);
        let rows = json.stdout.lines().map(|line| {
            let row: Value = serde_json::from_str(line).expect("an object per line");
            let user = row["values"]["user"].as_str().expect("a text").to_owned();
            (user, row["tiers"][0]["used"].as_u64().expect("a number"))
        });
        assert_eq!(rows.collect::<BTreeMap<_, _>>(), expected);
        let some = ["--rule", "user", "--order", "name", "--limit", "1500", "--format", "json"];
        assert_eq!(usage(&weir, &some).stdout.lines().count(), 1_500);
    });
}

#[test]
fn the_command_says_what_to_do() {
    let weir = Weir::start(RULES);
    for (args, code, why) in [
        (&["--rule", "plain"][..], 64, "write `usage: true`"),
        (&["--rule", "nothing"], 64, "no rule of the domain"),
        (&["--rule", "user", "--limit", "1001"], 64, "use --order name"),
        (&["--rule", "user", "--limit", "0"], 2, "0"),
        (&[], 2, "--rule"),
    ] {
        let run = usage(&weir, args);
        assert_eq!(run.code, Some(code), "{run:?}");
        assert!(run.stderr.contains(why), "{run:?}");
    }
    let empty = usage(&weir, &["--rule", "user"]);
    assert_eq!((empty.code, empty.stdout.lines().count()), (Some(0), 1), "{empty:?}");
    let addr = ["usage", "--addr", "http://127.0.0.1:1", "--domain", "d", "--rule", "user"];
    assert_eq!(run(Path::new("."), &addr).code, Some(69));
}
