//! Plans of files: the numbers of a customer's plan, and changes of them while weir serves.

use std::fs::rename;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::http::{get, post};
use crate::support::rls::{Client, costing, descriptor, request};
use crate::support::wait::until;
use crate::support::weir::cli::run;
use crate::support::weir::{Setup, Weir, write};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: api_key
    rate_limit:
      name: calls
      requests: 5
      window: 1h
      limit_from: { customer: api_key, default: free }
  - key: plan
    value: '*'
    share_threshold: true
    descriptors:
      - key: user
        rate_limit:
          name: by-plan
          requests: 3
          window: 1h
          limit_from: { plan: plan, limit: calls }
";

const PLANS: &str = "
plans:
  free: { calls: 10 }
  pro: { calls: { requests: 1000 } }
  house: { calls: unlimited }
customers: { acme: pro, bank: house, old: gone }
";

/// A folder with files of plans.
struct Files(TempDir);

impl Files {
    fn new(plans: &str) -> Files {
        let files = Files(TempDir::new().expect("a temporary folder"));
        write(&files.path("plans.yaml"), plans);
        files
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Puts a file in place by renaming it, so that no part of it is read.
    fn replace(&self, name: &str, text: &str) {
        write(&self.path("next"), text);
        rename(self.path("next"), self.path(name)).expect("a rename");
    }

    /// A weir that reads the file of plans.
    fn setup(&self) -> Setup {
        let setup = Weir::setup().rules("rules.yaml", RULES).env("WEIR__PLANS__SOURCE", "file");
        setup.env("WEIR__PLANS__FILE", text(&self.path("plans.yaml")))
    }

    /// A weir that also reads a file of customers.
    fn setup_with_customers(&self) -> Setup {
        self.setup().env("WEIR__PLANS__CUSTOMERS_FILE", text(&self.path("customers.csv")))
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The limit of one descriptor, by a peek; 0 without a limit.
fn limit(client: &Client, entries: &[(&str, &str)]) -> u32 {
    let answer = client.check(request("d", vec![costing(0, descriptor(entries))]));
    answer.statuses[0].current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit)
}

/// The limits of customers.
fn limits(client: &Client, customers: &[&str]) -> Vec<u32> {
    customers.iter().map(|customer| limit(client, &[("api_key", customer)])).collect()
}

fn counter(weir: &Weir, entries: &str) -> Value {
    get(weir.admin, &format!("/counters?domain=d&descriptor={entries}")).json()
}

/// Whether the log has a line with this part.
fn logs(weir: &mut Weir, part: &str) {
    let what = format!("a line with {part:?}");
    weir.process().wait_for(&what, |line| line.contains(part).then_some(()));
}

#[test]
fn a_customer_has_the_numbers_of_its_plan() {
    let files = Files::new(PLANS);
    let weir = files.setup().start();
    let client = weir.client();
    assert_eq!(limits(&client, &["acme", "bank", "old", "new"]), [1000, 0, 10, 10]);
    for (plan, requests) in [("pro", 1000), ("free", 10), ("gone", 3), ("house", 0)] {
        assert_eq!(limit(&client, &[("plan", plan), ("user", "ann")]), requests, "{plan}");
    }
    let unlimited = request("d", vec![costing(1 << 40, descriptor(&[("api_key", "bank")]))]);
    assert_eq!(client.check(unlimited).overall_code, 1);
}

/// A user of a proxy that knows the plan keeps the count, because the plans share a counter.
#[test]
fn an_upgrade_keeps_the_count() {
    within_an_hour(|| {
        let files = Files::new(PLANS);
        let weir = files.setup().start();
        let client = weir.client();
        let of = |plan| vec![("plan", plan), ("user", "ann")];
        let take = request("d", vec![costing(4, descriptor(&of("free")))]);
        assert_eq!(client.check(take).statuses[0].limit_remaining, 6);
        assert_eq!(client.remaining("d", &of("pro")), 996);
        assert_eq!(client.remaining("d", &of("gone")), 0, "over the limit of the rule");
    });
}

#[test]
fn explain_and_counters_show_the_plan() {
    let files = Files::new(PLANS);
    let weir = files.setup().start();
    let explain = |text: &str| {
        let body = json!({ "domain": "d", "descriptor": text }).to_string();
        post(weir.admin, "/explain", body).json()["explanations"][0].clone()
    };
    for (entries, plan, line, requests) in [
        (
            "api_key=acme",
            json!({ "name": "pro", "selection": "customer", "numbers": "plan" }),
            "plan    pro (that of the customer)\n",
            Some(1000),
        ),
        (
            "api_key=new",
            json!({ "name": "free", "selection": "default", "numbers": "plan" }),
            "plan    free (the default)\n",
            Some(10),
        ),
        (
            "plan=gone,user=ann",
            json!({ "name": null, "selection": "rule", "numbers": "rule" }),
            "plan    none: the numbers of the rule decide\n",
            Some(3),
        ),
        (
            "api_key=bank",
            json!({ "name": "house", "selection": "customer", "numbers": "unlimited" }),
            "plan    house (that of the customer); unlimited\n",
            None,
        ),
    ] {
        let explanation = explain(entries);
        assert_eq!(explanation["plan"], plan, "{entries}");
        let shown = explanation["text"].as_str().expect("a text");
        assert!(shown.ends_with(line), "{shown}");
        let counter = counter(&weir, entries);
        match requests {
            Some(requests) => {
                assert_eq!(counter["plan"], plan, "{counter}");
                assert_eq!(counter["tiers"][0]["requests"], requests, "{counter}");
            }
            None => {
                let error = counter["error"].as_str().unwrap_or_default();
                assert!(error.starts_with("its plan is unlimited"), "{counter}");
            }
        }
    }
    let rule = explain("calls");
    assert!(rule["plan"].is_null(), "a rule has no plan: {rule}");
    let shown = rule["text"].as_str().expect("a text");
    let option =
        "numbers from the plan of the customer `api_key`: limit `calls`, default plan `free`";
    assert!(shown.contains(option), "{shown}");
}

/// A plan and the plan of a customer change, and the counts stay.
#[test]
fn changed_files_are_active_and_keep_counts() {
    within_an_hour(|| {
        let files = Files::new(PLANS);
        let mut weir = files.setup().start();
        let client = weir.client();
        let take = request("d", vec![costing(10, descriptor(&[("api_key", "new")]))]);
        assert_eq!(client.check(take).overall_code, 1);
        files.replace("plans.yaml", &PLANS.replace("calls: 10 ", "calls: 12 "));
        until("the new numbers", || limits(&client, &["new"]) == [12]);
        assert_eq!(client.remaining("d", &[("api_key", "new")]), 2);
        logs(&mut weir, "plans reloaded");

        files.replace("plans.yaml", &PLANS.replace("acme: pro", "new: pro"));
        until("the new customer", || limits(&client, &["acme", "new"]) == [10, 1000]);
        assert_eq!(client.remaining("d", &[("api_key", "new")]), 990);
        // Written in place, as an editor does.
        write(&files.path("plans.yaml"), &PLANS.replace("acme: pro", "new: free"));
        until("the old plan", || limits(&client, &["acme", "new"]) == [10, 10]);
        assert_eq!(client.remaining("d", &[("api_key", "new")]), 0);
    });
}

#[test]
fn a_bad_file_leaves_the_active_plans() {
    let files = Files::new(PLANS);
    write(&files.path("customers.csv"), "small,free\n");
    let mut weir = files.setup_with_customers().start();
    let client = weir.client();
    let known = ["acme", "small", "new"];
    assert_eq!(limits(&client, &known), [1000, 10, 10]);
    for (name, bad, problem) in [
        ("plans.yaml", "plans: { free: { calls: -1 } }", "limit `calls`: `-1` is no whole number"),
        ("customers.csv", "small,free\nsmall\n", "customers.csv: line 2: the plan is missing"),
        ("plans.yaml", "", "no plans, and 3 are active"),
    ] {
        let good = std::fs::read_to_string(files.path(name)).expect("a file");
        files.replace(name, bad);
        logs(&mut weir, problem);
        assert_eq!(limits(&client, &known), [1000, 10, 10], "{name}");
        let reloads = weir.process().output().matches("plans reloaded").count();
        files.replace(name, &good);
        until("it is correct again", || {
            weir.process().output().matches("plans reloaded").count() > reloads
        });
    }
    std::fs::remove_file(files.path("plans.yaml")).expect("it exists");
    logs(&mut weir, "plans.yaml: No such file");
    assert_eq!(limits(&client, &known), [1000, 10, 10], "a missing file");
    files.replace("plans.yaml", "plans: { free: { calls: 7 } }");
    until("the next file", || limits(&client, &known) == [7, 7, 7]);
    assert!(weir.process().output().contains("plans not reloaded: the active plans stay"));
}

#[test]
fn a_file_of_customers_is_reloaded() {
    let files =
        Files::new("plans: { free: { calls: 1 }, pro: { calls: 2 } }\ncustomers: { a: pro }");
    let many = |plan: &str| -> String {
        let lines = (0..50_000).map(|customer| format!("\"c,{customer}\",{plan}\n"));
        format!("customer,plan\n{}", lines.collect::<String>())
    };
    write(&files.path("customers.csv"), &many("pro"));
    let weir = files.setup_with_customers().start();
    let client = weir.client();
    let known = ["c,0", "c,49999", "c,50000", "a"];
    assert_eq!(limits(&client, &known), [2, 2, 1, 2]);
    files.replace("customers.csv", &format!("{}x,pro\n", many("free")));
    until("the new file", || limits(&client, &known) == [1, 1, 1, 2]);
    assert_eq!(limits(&client, &["x"]), [2]);
    write(&files.path("customers.csv"), "");
    until("an empty file", || limits(&client, &["x"]) == [1]);
}

#[test]
fn sighup_reads_the_files_again() {
    let files = Files::new(PLANS);
    let mut weir = files.setup().start();
    let client = weir.client();
    weir.process().signal("HUP");
    logs(&mut weir, "plans reloaded");
    // SIGHUP accepts that all plans are removed.
    files.replace("plans.yaml", "plans: {}");
    logs(&mut weir, "plans not reloaded");
    assert_eq!(limits(&client, &["acme"]), [1000]);
    weir.process().signal("HUP");
    until("no plans", || limits(&client, &["acme"]) != [1000]);
}

#[test]
fn numbers_that_do_not_fit_are_reported() {
    let files = Files::new("plans: { free: { calls: [1, 2] }, pro: { calls: 7 } }");
    write(&files.path("customers.csv"), "acme,pro\nbank,gone\n");
    let mut weir = files.setup_with_customers().start();
    let warning = "limit `calls` of plan `free` does not fit rule `calls` of domain `d`";
    logs(&mut weir, warning);
    logs(&mut weir, "1 customers have a plan that is not defined, such as `gone`");
    let client = weir.client();
    assert_eq!(limits(&client, &["acme", "bank", "new"]), [7, 5, 5]);
    // New rules are checked with the active plans.
    let rules = RULES.replace("limit: calls }", "limit: cals }");
    write(&weir.rules_folder().join("rules.yaml"), &rules);
    logs(&mut weir, "no plan has the limit `cals` of rule `by-plan`");

    let settings = format!(
        "{{ plans: {{ source: file, file: {} }}, rules: {{ paths: [{}] }} }}",
        text(&files.path("plans.yaml")),
        text(&weir.rules_folder())
    );
    write(&files.path("weir.yaml"), &settings);
    let check = run(files.0.path(), &["check", "--config", "weir.yaml"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.stderr.contains(&format!("warning: {warning}")), "{check:?}");
}

/// Calls never fail and never see a mixture of two files, while plans and rules are reloaded.
#[test]
fn reloads_under_load_fail_no_call() {
    const LAST: u32 = 60;
    let plans = |version: u32| {
        // The plans change places, so another number of a plan would give the wrong limit.
        let mut plans = [format!("a: {{ calls: {version} }}"), "b: { calls: 1 }".to_owned()];
        plans.rotate_left(version as usize % 2);
        format!("plans: {{ {} }}\ncustomers: {{ acme: a, bank: b }}", plans.join(", "))
    };
    let files = Files::new(&plans(2));
    let mut weir = files.setup().start();
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let grpc = weir.grpc;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = Client::connect(grpc);
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    let entries = ["acme", "bank"].map(|customer| [("api_key", customer)]);
                    let peeks = entries.iter().map(|one| costing(0, descriptor(one))).collect();
                    let answer = client.check(request("d", peeks));
                    let limits: Vec<u32> = answer
                        .statuses
                        .iter()
                        .map(|one| one.current_limit.as_ref().map_or(0, |it| it.requests_per_unit))
                        .collect();
                    assert_eq!(limits[1], 1, "the limit of another plan");
                    assert!(limits[0] >= last && limits[0] <= LAST, "{} after {last}", limits[0]);
                    last = limits[0];
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for version in 3..=LAST {
            files.replace("plans.yaml", &plans(version));
            weir.process().signal("HUP");
        }
        let client = Client::connect(grpc);
        until("the last file is active", || limits(&client, &["acme"]) == [LAST]);
        let so_far = calls.load(Ordering::Relaxed);
        until("each client has an answer from it", || calls.load(Ordering::Relaxed) > so_far + 6);
        over.store(true, Ordering::Relaxed);
    });
    let reloads = weir.process().output().matches("plans reloaded").count();
    assert!(reloads > 2, "{reloads} reloads");
}
