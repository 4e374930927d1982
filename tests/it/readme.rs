//! The commands of the README, run as printed.

use std::path::Path;

use crate::support::http::post;
use crate::support::weir::Weir;
use crate::support::weir::cli::run;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The most times that a command is repeated until a request is denied.
const ATTEMPTS_MAX: usize = 200;

/// The commands in the README's fenced blocks that start with `program`, one string each, with
/// continued lines joined.
fn commands(program: &str) -> Vec<Vec<String>> {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("a README");
    // Every second part is between two fences.
    let blocks = readme.split("```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| {
        let block = block.replace("\\\n", " ");
        block.lines().map(|line| words(line.trim_start_matches("$ "))).collect::<Vec<_>>()
    });
    lines.filter(|words| words.first().is_some_and(|first| first.ends_with(program))).collect()
}

/// Splits a line at blanks outside of quotes, as a shell does.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        let word = words.last_mut().expect("there is always a word");
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None, ' ' | '\t') => words.push(String::new()),
            _ => word.push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The service as `make run` starts it, with free ports.
fn example_service() -> Weir {
    let examples = Path::new(ROOT).join("examples");
    let setup = Weir::setup().rules_at(&examples.join("rules"));
    setup.config(&examples.join("weir.yaml").to_string_lossy()).start()
}

/// The arguments of every `weir COMMAND` in the README.
fn weir_commands(command: &str) -> Vec<Vec<String>> {
    let all = commands("weir").into_iter().map(|words| words[1..].to_vec());
    let found: Vec<_> = all.filter(|args| args.first().is_some_and(|arg| arg == command)).collect();
    assert!(!found.is_empty(), "the README shows no `weir {command}`");
    found
}

#[test]
fn weir_call_shows_ok_and_then_over_limit() {
    for words in weir_commands("call") {
        let weir = example_service();
        let address = weir.grpc.to_string();
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        match args.iter().position(|arg| *arg == "--addr") {
            Some(at) => args[at + 1] = &address,
            None => args.extend(["--addr", &address]),
        }
        let first = run(Path::new(ROOT), &args);
        assert_eq!(first.code, Some(0), "{words:?}: {first:?}");
        let refused = || (0..ATTEMPTS_MAX).any(|_| run(Path::new(ROOT), &args).code == Some(1));
        let looks_only = words.windows(2).any(|pair| pair == ["--hits", "0"]);
        assert!(looks_only || refused(), "{words:?} is never refused");
    }
}

#[test]
fn weir_bench_decides_all_its_calls() {
    for words in weir_commands("bench") {
        let weir = example_service();
        let address = weir.grpc.to_string();
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        args.extend(["--addr", &address, "--warmup", "0", "--duration", "0.2"]);
        let load = run(Path::new(ROOT), &args);
        assert_eq!(load.code, Some(0), "{words:?}: {load:?}");
        assert!(load.stdout.contains("decided"), "{words:?}: {load:?}");
    }
}

#[test]
fn weir_check_and_explain_work_as_shown() {
    for args in [weir_commands("check"), weir_commands("explain")].concat() {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let run = run(Path::new(ROOT), &args);
        assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
        assert!(!run.stdout.is_empty(), "{args:?} prints nothing");
    }
}

#[test]
fn curl_shows_ok_and_then_over_limit() {
    let weir = example_service();
    let mut tried = 0;
    for words in commands("curl") {
        let path = words.iter().find_map(|word| word.split_once(":8080").map(|(_, path)| path));
        let flag = words.iter().position(|word| matches!(word.as_str(), "-d" | "--data"));
        let (Some(path), Some(flag)) = (path, flag) else { continue };
        let check = || post(weir.http, path, &words[flag + 1]).status;
        assert_eq!(check(), 200, "{words:?}");
        assert!((0..ATTEMPTS_MAX).any(|_| check() == 429), "{words:?} is never refused");
        tried += 1;
    }
    assert!(tried > 0, "the README shows no `curl` request");
}

#[test]
fn words_are_split_as_a_shell_does() {
    assert_eq!(
        words(r#"curl  -d '{"a": "b c"}' "x y"z"#),
        ["curl", "-d", r#"{"a": "b c"}"#, "x yz"]
    );
}
