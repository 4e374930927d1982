//! The commands of all pages, run as printed.
//!
//! The lines of `sh` blocks run one after the other in a folder like the root of the repository. A
//! `text` block behind a `sh` block has all that its commands print; a `json` block has a part of it.

mod compose;
mod grpcurl;
mod reader;
mod shown;
pub(crate) mod text;

use serde_json::Value;

use crate::support::weir::cli::Run;
use crate::support::window_edge::within_a_minute;
use reader::{Reader, program};
use shown::Shown;
use text::{Block, Page, pages, words};

/// Programs that the tests run.
const RUN: [&str; 4] = ["weir", "curl", "grpcurl", "python3"];

/// Starts of commands that are not run here, with the reason.
const ELSEWHERE: [(&str, &str); 25] = [
    ("weir check --overlay overlays.yaml --xds ", "xds/cache.rs runs the command on a cache"),
    ("weir plans ", "tests/redis/plans.rs runs the commands on a Redis"),
    ("make ", "page_content.rs: the Makefile has the target"),
    ("cargo bench ", "it takes minutes; page_content.rs: Cargo.toml has the benchmark"),
    ("cd fuzz && cargo run ", "it needs the input of a failure; `make fuzz` runs the target"),
    ("redis-cli FUNCTION ", "tests/redis/functions.rs runs the commands on a server"),
    ("docker build ", "no container engine; helm/tests/test_image.py checks the Dockerfile"),
    ("docker push ", "it publishes; helm/tests/test_pages.py compares the names"),
    ("docker buildx imagetools ", "it needs a published image; release.yml attaches the data"),
    ("cosign verify ", "it needs a published image; helm/tests/test_repository.py checks names"),
    ("gh attestation ", "it needs a published image; helm/tests/test_repository.py checks names"),
    ("sha256sum ", "it needs the files of a release; release.yml writes the checksums"),
    ("docker compose ", "no container engine; tests/redis/compose.rs runs the services"),
    ("kind ", "no container engine; helm/tests/test_kind.py checks the files"),
    ("helm ", "helm/tests/test_pages.py renders the chart with these values"),
    ("kubectl ", "it needs a cluster; helm/tests/ checks the objects"),
    ("for i in ", "it needs a cluster; envoy.rs sends such paths through the rules"),
    ("envoy -c ", "envoy.rs runs the file with free ports"),
    ("python3 -m pip ", "`make grpc-clients` installs the packages"),
    ("npm ci ", "`make grpc-clients` installs the packages"),
    ("node ", "clients.rs runs the sample"),
    ("go -C ", "clients.rs runs the sample"),
    ("mvn ", "`make grpc-clients` builds the sample"),
    ("java ", "clients.rs runs the sample"),
    ("cargo run --example client ", "clients.rs runs the sample"),
];

/// The most times that a command is repeated until its request is denied.
const ATTEMPTS_MAX: usize = 200;

fn is_elsewhere(command: &str) -> bool {
    ELSEWHERE.iter().any(|(start, _)| command.starts_with(start))
}

#[test]
fn every_command_has_a_test() {
    let pages = pages();
    let commands: Vec<(&str, String)> = pages
        .iter()
        .flat_map(|page| {
            page.commands().into_iter().map(move |command| (page.name.as_str(), command))
        })
        .collect();
    assert!(commands.len() >= 50, "only {} commands were found", commands.len());
    for (page, command) in &commands {
        let known = is_elsewhere(command) || RUN.contains(&program(&words(command)));
        assert!(known, "{page}: no test runs `{command}`; add it to reader.rs or to ELSEWHERE");
    }
    for (start, why) in ELSEWHERE {
        let used = commands.iter().any(|(_, command)| command.starts_with(start));
        assert!(used, "no page has `{start}` any more ({why})");
    }
}

#[test]
fn commands_print_what_the_pages_show() {
    let mut read = 0;
    for page in pages() {
        if page.commands().iter().any(|command| !is_elsewhere(command)) {
            eprintln!("{}", page.name);
            within_a_minute(|| follow(&page));
            read += 1;
        }
    }
    assert!(read >= 10, "only {read} pages have commands");
}

/// Runs all commands of a page, in order, against services that start with it.
fn follow(page: &Page) {
    let reader = Reader::new();
    let blocks = page.blocks();
    for (at, block) in blocks.iter().enumerate() {
        let mut commands = block.commands();
        commands.retain(|command| !is_elsewhere(command));
        if commands.is_empty() {
            continue;
        }
        match blocks.get(at + 1) {
            Some(next) if next.language == "text" => shows_text(&reader, &commands, next),
            Some(next) if next.language == "json" => shows_json(&reader, &commands, next),
            _ => commands.iter().for_each(|command| drop(run(&reader, command))),
        }
    }
}

/// The `text` block has every line that the commands print.
fn shows_text(reader: &Reader, commands: &[String], block: &Block<'_>) {
    let mut shown = Shown::new(block);
    for command in commands {
        let command = shown.today(command);
        let run = match shown.starts_with_a_denial() {
            true => until_denied(reader, &command),
            false => run(reader, &command),
        };
        shown.compare(&command, &run.stdout);
    }
    shown.end();
}

/// The last command prints JSON with all that the block has.
fn shows_json(reader: &Reader, commands: &[String], block: &Block<'_>) {
    let mut stdout = String::new();
    for command in commands {
        stdout = run(reader, command).stdout;
    }
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let missing = shown::missing(&read(block.text), &read(&stdout));
    assert_eq!(missing, None, "{commands:?} print\n{stdout}");
}

/// Runs a command that must succeed.
fn run(reader: &Reader, command: &str) -> Run {
    let words = words(command);
    let run = reader.run(&words);
    assert_eq!(run.code, Some(0), "{command}: {run:?}");
    match words.get(1).map(String::as_str) {
        Some("check" | "explain" | "call") => assert!(!run.stdout.is_empty(), "{command}"),
        Some("bench") => assert!(run.stdout.contains("decided"), "{command}: {run:?}"),
        _ => {}
    }
    run
}

/// Repeats a call until it is denied, as a person would.
fn until_denied(reader: &Reader, command: &str) -> Run {
    let words = words(command);
    let mut runs = (0..ATTEMPTS_MAX).map(|_| reader.run(&words));
    runs.find(|run| run.code == Some(1)).unwrap_or_else(|| panic!("`{command}` is never denied"))
}
