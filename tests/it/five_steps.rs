//! docs/operate/why-am-i-limited.md, as a newcomer follows it: its commands lead from a denied customer
//! to a limit with which the customer passes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::page_commands::text::{Page, pages, words};
use crate::support::rls::{Client, descriptor, request};
use crate::support::weir::Weir;
use crate::support::weir::cli::run;
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: shop
descriptors:
  - key: tariff
    value: basic
    descriptors:
      - key: customer
        rate_limit: { name: basic-customers, unit: hour, requests_per_unit: 2, usage: true }
  - key: customer
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

/// The steps of the page.
const STEPS: usize = 5;

/// The most time for all commands. They take well below a second on an idle machine.
const TIME_MAX: Duration = Duration::from_secs(60);

const OK: i32 = 1;
const OVER: i32 = 2;

/// The first command of each numbered section of the page.
fn steps() -> Vec<String> {
    let pages = pages();
    let page = pages
        .iter()
        .find(|page| page.name == "docs/operate/why-am-i-limited.md")
        .expect("the page");
    let sections = page.text.split("\n## ").skip(1);
    let numbered = sections.filter(|text| text.starts_with(|first: char| first.is_ascii_digit()));
    let first = |text: &str| {
        let section = Page { name: page.name.clone(), text: text.to_owned() };
        section.commands().into_iter().next().unwrap_or_else(|| panic!("no command in {text}"))
    };
    numbered.map(first).collect()
}

/// Runs a command of the page, with what was found instead of what the page shows. Returns its output.
fn follow(command: &str, found: &[(&str, &str)]) -> String {
    let mut command = command.to_owned();
    for (shown, found) in found {
        assert!(command.contains(shown), "{command} has no {shown}");
        command = command.replace(shown, found);
    }
    let words = words(&command);
    let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    match words[0].as_str() {
        "weir" => {
            let run = run(Path::new("."), &args);
            assert_eq!(run.code, Some(0), "{command}: {run:?}");
            run.stdout
        }
        "curl" => {
            let mut curl = Command::new("curl");
            curl.args(["-q", "--silent", "--show-error", "--fail", "--noproxy", "*"]);
            let output = curl.args(args).output().expect("curl; `make test` installs it");
            assert!(output.status.success(), "{command}: {output:?}");
            String::from_utf8(output.stdout).expect("text")
        }
        other => panic!("no step runs {other}"),
    }
}

/// The word at `index` of the first line with `part`.
fn word(output: &str, part: &str, index: usize) -> String {
    let line = output.lines().find(|line| line.contains(part));
    let word = line.and_then(|line| line.split_whitespace().nth(index));
    word.unwrap_or_else(|| panic!("no word {index} in a line with {part:?}:\n{output}")).to_owned()
}

fn hit(client: &Client, customer: &str) -> i32 {
    let of_customer = descriptor(&[("tariff", "basic"), ("customer", customer)]);
    client.check(request("shop", vec![of_customer])).overall_code
}

/// Only the name of the customer and the address of the admin port are known at the start. Each command
/// needs no more than these and the output of those before.
#[test]
fn five_steps_lead_from_a_denial_to_a_higher_limit() {
    let steps = steps();
    assert_eq!(steps.len(), STEPS, "{steps:?}");
    let [health, who, why, attempt, change] = &steps[..] else { panic!("{steps:?}") };
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        for customer in ["acme", "other"] {
            let codes = [(); 4].map(|()| hit(&client, customer));
            assert_eq!(codes, [OK, OK, OVER, OVER]);
        }
        let begun = Instant::now();
        let port = weir.admin.to_string();
        let of_weir = ("127.0.0.1:6070", port.as_str());

        let health = follow(health, &[of_weir]);
        assert!(health.starts_with("serving, "), "{health}");
        assert!(!health.contains("\nproblem "), "{health}");

        let limited = follow(who, &[of_weir]);
        // `2 denied  DOMAIN  RULE  DESCRIPTOR  until INSTANT`
        let [domain, rule, descriptor] = [2, 3, 4].map(|index| word(&limited, "=acme", index));

        let shown = [("demo", domain.as_str()), ("user=alice", descriptor.as_str())];
        let explained = follow(why, &[&[of_weir][..], &shown].concat());
        assert_eq!(word(&explained, "rule  ", 1), rule, "{explained}");
        assert!(word(&explained, "rule  ", 2).contains("rules.yaml:"), "{explained}");
        // `state   4 used, 0 of 2 remaining, ..`
        let used: u64 = word(&explained, "state  ", 1).parse().expect("a number");

        let limit = (2 * used).to_string();
        let body = format!(r#""requests": {limit}"#);
        let of_curl = [("localhost:6070", port.as_str()), (r#""requests": 10"#, body.as_str())];
        let tried = follow(attempt, &[&of_curl[..], &shown].concat());
        let tried: Value = serde_json::from_str(&tried).expect("JSON");
        assert_eq!(tried["code"], "OVER_LIMIT", "{tried}");
        assert_eq!(tried["descriptors"][0]["with_limit"]["code"], "OK", "{tried}");
        assert_eq!(hit(&client, "acme"), OVER, "the trial changes nothing");

        let flag = format!("--limit {limit}");
        let raised = [of_weir, ("--limit 10", flag.as_str())];
        let changed = follow(change, &[&raised[..], &shown].concat());
        assert!(changed.contains(&format!("limit of descriptor {descriptor} in")), "{changed}");

        let time = begun.elapsed();
        assert_eq!([hit(&client, "acme"), hit(&client, "other")], [OK, OVER]);
        eprintln!("the {STEPS} steps take {time:?}");
        assert!(time <= TIME_MAX, "{time:?}");
    });
}
