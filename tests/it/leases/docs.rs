//! The commands of docs/concurrency.md, run as printed with the rules of the example.

use std::path::Path;

use crate::support::weir::Weir;
use crate::support::weir::cli::run;
use crate::support::window_edge::within_an_hour;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PAGE: &str = include_str!("../../../docs/concurrency.md");

/// The page's commands with their output: a fenced `sh` block and the `text` block after it.
fn sessions() -> Vec<(&'static str, &'static str)> {
    let blocks: Vec<&str> = PAGE.split("```").skip(1).step_by(2).collect();
    let pairs = blocks.windows(2);
    pairs
        .filter_map(|pair| Some((pair[0].strip_prefix("sh\n")?, pair[1].strip_prefix("text\n")?)))
        .collect()
}

/// Removes the parts of a line that differ between runs: the time until a reset, and a lease id.
fn lasting(line: &str) -> String {
    let line = line.split(", resets in").next().unwrap_or(line);
    match id(line) {
        Some(id) => line.replace(id, "..."),
        None => line.to_owned(),
    }
}

/// The id in a line with a lease.
fn id(line: &str) -> Option<&str> {
    line.split_once(r#""id":""#)?.1.split('"').next()
}

/// A text of the page with the ids of this run.
fn today(text: &str, ids: &[(&str, String)]) -> String {
    ids.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new))
}

#[test]
fn the_docs_show_what_their_commands_print() {
    let sessions = sessions();
    assert!(sessions.len() >= 2, "the page has lost its sessions");
    within_an_hour(|| {
        let weir = Weir::setup().rules_at(&Path::new(ROOT).join("examples/rules")).start();
        let address = weir.grpc.to_string();
        for (commands, shown) in &sessions {
            // The ids on the page and in this run.
            let mut ids: Vec<(&str, String)> = Vec::new();
            let mut shown = shown.lines();
            for command in commands.lines() {
                let typed = command.split(" #").next().unwrap_or(command);
                let typed = today(typed, &ids);
                let mut args: Vec<&str> = typed.split_whitespace().skip(1).collect();
                args.extend(["--addr", &address]);
                let run = run(Path::new(ROOT), &args);
                for line in run.stdout.lines() {
                    let expected = shown.next().unwrap_or("nothing");
                    let expected_today = lasting(&today(expected, &ids));
                    assert_eq!(lasting(line), expected_today, "{command}: {run:?}");
                    if let Some((old, new)) = id(expected).zip(id(line)) {
                        ids.push((old, new.to_owned()));
                    }
                }
            }
            assert_eq!(shown.next(), None, "more is shown than is printed");
        }
    });
}
