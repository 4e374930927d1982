//! The behaviour of envoyproxy/ratelimit as tables: rules, requests, and expected responses.
//!
//! Each file under `data/compat/` is one run of the binary. A client generated from Envoy's own
//! definitions sends its requests in order over gRPC.

mod case;
mod table;

use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;
use case::{Question, Shown};
use table::{Row, Table};

macro_rules! tables {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(include_str!(concat!("data/compat/", stringify!($name), ".table")));
        })*

        const LISTED: &[&str] = &[$(concat!(stringify!($name), ".table")),*];
    };
}

tables! {
    collisions
    global_quota
    global_quota_by_envoy_ratelimits_name
    global_shadow
    hits
    matching
    merged_files
    overrides
    quota
    refused
    replaces
    shadow
    units
    unlimited
    wildcard_counters
}

#[test]
fn every_table_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/compat");
    let files = std::fs::read_dir(folder).expect("the tables' folder");
    let mut names: Vec<String> = files
        .map(|file| file.expect("a readable folder").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, LISTED);
}

/// Sends the requests of a table to a fresh process and compares all responses at once, so that a
/// failure shows every difference.
fn check(text: &str) {
    let table = Table::parse(text);
    within_an_hour(|| {
        let mut setup = Weir::setup();
        for (name, value) in &table.env {
            setup = setup.env(name, value);
        }
        for (name, rules) in &table.rules {
            setup = setup.rules(name, rules);
        }
        let mut weir = setup.start();
        let client = weir.client();
        let mut wrong = Vec::new();
        for row in &table.rows {
            let answer = client.try_check(Question::parse(row.question).0);
            let got = Shown::of(&answer).to_string();
            if got != row.answer {
                let Row { line, question, answer } = row;
                wrong.push(format!("line {line}: {question}\n  want {answer}\n  got  {got}"));
            }
        }
        assert!(wrong.is_empty(), "{}\n{}", table.claim, wrong.join("\n"));
        assert!(weir.process().is_alive());
    });
}
