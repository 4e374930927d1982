//! The function library: where it is loaded, when it is loaded again, and that scripts replace it.

use std::process::Command;
use std::sync::Arc;

use weir::store::redis::script::{Script, library};

use crate::support::load::{Load, LoadResult, MakeRequest, figures};
use crate::support::on_redis::{over, ready};
use crate::support::redis::resp::Reply;
use crate::support::redis::sentinel::Watched;
use crate::support::redis::server::Server;
use crate::support::rls::{Code, costing, descriptor, headers, request};
use crate::support::schedule::{exclusive, shared};
use crate::support::wait::until;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 500, window: 1000d }
";

/// The calls by functions, and all calls.
fn calls(weir: &Weir) -> (u64, u64) {
    let of = |name: &str| weir.metric(name, &[]);
    (of("weir_redis_function_calls_total"), of("weir_redis_calls_total"))
}

/// The failed steps, and the decisions by the fallback.
fn errors(weir: &Weir) -> [u64; 2] {
    ["weir_redis_step_errors_total", "weir_fallback_total"].map(|name| weir.metric(name, &[]))
}

/// The remaining hits of a counter after this many hits, or `None` if the fallback decided.
fn remaining(weir: &Weir, hits: u64) -> Option<u32> {
    let answer = weir.client().check(request("d", vec![costing(hits, descriptor(&[("k", "x")]))]));
    let counted = headers(&answer).iter().any(|(_, value)| value.ends_with("fallback=none"));
    counted.then(|| answer.statuses[0].limit_remaining)
}

/// The number of libraries on a server whose names match `pattern`.
fn libraries(server: &Server, pattern: &str) -> usize {
    match server.client().run(&["FUNCTION", "LIST", "LIBRARYNAME", pattern]) {
        Reply::List(libraries) => libraries.len(),
        other => panic!("{other:?}"),
    }
}

/// The output of a `redis-cli` command of a page.
fn redis_cli(server: &Server, arguments: &str) -> String {
    let port = server.port().to_string();
    let words = arguments.split_whitespace().map(|word| word.trim_matches('\''));
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", port.as_str()]).args(words);
    let output = command.output().expect("redis-cli; `make redis` installs it");
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Creates a user with the rights of docs/operate/redis.md but `missing`. Returns the URL for it.
fn create_user(server: &Server, missing: &[&str]) -> String {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate/redis.md"));
    let page = page.expect("a page about Redis");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER weir ")).expect("an example");
    let all: Vec<&str> = line.split_whitespace().collect();
    let words: Vec<&str> = all.iter().copied().filter(|word| !missing.contains(word)).collect();
    assert_eq!(words.len() + missing.len(), all.len(), "the page has all of {missing:?}");
    server.client().run(&words);
    let password = words.iter().find_map(|word| word.strip_prefix('>')).expect("a password");
    format!("redis://weir:{password}@{}", server.address())
}

/// Without the right to call functions, or to load them, scripts count, and one log line says so.
#[test]
fn a_user_without_rights_to_functions_gets_scripts() {
    let _permit = shared();
    for right in ["+fcall", "+function|load"] {
        let server = Server::listening(&[]);
        let mut weir = over(&create_user(&server, &[right]), RULES).store_timeout("5s").start();
        ready(&weir);
        assert_eq!(remaining(&weir, 2), Some(498), "{right}");
        let (by_functions, all) = calls(&weir);
        assert!(by_functions == 0 && all > 0, "{right}: {by_functions} of {all}");
        let output = weir.process().output();
        assert_eq!(output.matches("Redis cannot run functions").count(), 1, "{right}: {output}");
    }
}

/// A server without `FCALL`, without `FUNCTION`, or without both, as of a provider or before 7.0: scripts
/// count, one log line says so, and nothing counts as an error.
#[test]
fn a_server_without_functions_gets_scripts() {
    let _permit = shared();
    let without = |command: &'static str| ["--rename-command", command, ""];
    let [no_call, no_load] = ["FCALL", "FUNCTION"].map(without);
    for options in [&no_call[..], &no_load, &[no_call, no_load].concat()] {
        let server = Server::listening(options);
        let missing = server.client().try_run(&[options[1], "x", "0"]).expect("an answer").text();
        assert!(missing.starts_with("ERR unknown command"), "{options:?}: {missing}");
        let url = format!("redis://{}", server.address());
        let mut weir = over(&url, RULES).store_timeout("5s").start();
        ready(&weir);
        // A step before the first connection may have failed, as with every server.
        let before = errors(&weir);
        let counts = [2, 497, 0, 1].map(|hits| remaining(&weir, hits));
        assert_eq!(counts, [Some(498), Some(1), Some(1), Some(0)], "{options:?}");
        let over = weir.client().check(request("d", vec![descriptor(&[("k", "x")])]));
        assert_eq!(over.overall_code, i32::from(Code::OverLimit), "{options:?}");
        let (by_functions, all) = calls(&weir);
        assert!(by_functions == 0 && all > 0, "{options:?}: {by_functions} of {all}");
        assert_eq!(errors(&weir), before, "{options:?}");
        let output = weir.process().output();
        let lines: Vec<&str> = output.lines().filter(|line| line.contains("cannot run")).collect();
        let [line] = lines[..] else { panic!("{options:?}: {output}") };
        assert!(line.contains("weir uses scripts") && line.contains("unknown command"), "{line}");
    }
}

/// The rights are withdrawn while functions are used: the next call is sent to the script.
#[test]
fn scripts_replace_functions_that_are_forbidden() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let weir = over(&create_user(&server, &[]), RULES).store_timeout("5s").start();
    ready(&weir);
    assert_eq!(remaining(&weir, 2), Some(498));
    let (by_functions, _) = calls(&weir);
    assert!(by_functions > 0, "functions are used first");
    server.client().run(&["ACL", "SETUSER", "weir", "-fcall"]);
    assert_eq!(remaining(&weir, 2), Some(496));
    assert_eq!(remaining(&weir, 2), Some(494));
}

/// A Redis without memory refuses to load the library. That passes, so it is no reason for the warning
/// and the long pause of a refusal.
#[test]
fn functions_are_tried_again_after_a_passing_error() {
    let _permit = shared();
    let server = Server::listening(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let url = format!("redis://{}", server.address());
    let mut weir = over(&url, RULES).store_timeout("5s").start();
    ready(&weir);
    assert_eq!((remaining(&weir, 0), calls(&weir).0), (Some(500), 0), "a script replies");
    server.client().run(&["CONFIG", "SET", "maxmemory", "0"]);
    until("functions are used", || {
        assert_eq!(remaining(&weir, 0), Some(500));
        calls(&weir).0 > 0
    });
    let output = weir.process().output();
    assert!(!output.contains("Redis cannot run functions"), "{output}");
}

#[test]
fn functions_can_be_off() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let url = format!("redis://{}", server.address());
    let setup = over(&url, RULES).store_timeout("5s");
    let weir = setup.env("WEIR__REDIS__FUNCTIONS", "off").start();
    ready(&weir);
    assert_eq!(remaining(&weir, 2), Some(498));
    assert_eq!(calls(&weir).0, 0);
    assert_eq!(libraries(&server, "*"), 0);
}

/// The library of another version stays beside that of this one.
#[test]
fn libraries_of_two_versions_stay_side_by_side() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let other = library().text.replace(&library().name, "weir_0000000000000000");
    server.client().run(&["FUNCTION", "LOAD", &other]);
    let url = format!("redis://{}", server.address());
    let weir = over(&url, RULES).store_timeout("5s").start();
    ready(&weir);
    assert_eq!(remaining(&weir, 2), Some(498));
    assert!(calls(&weir).0 > 0, "functions are used");
    let found = ["weir_*", library().name.as_str()].map(|pattern| libraries(&server, pattern));
    assert_eq!(found, [2, 1]);
}

/// The commands of docs/operate/redis.md list the libraries, and delete that of another version.
#[test]
fn commands_of_the_page_delete_a_library() {
    let _permit = shared();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate/redis.md"));
    let page = page.expect("a page about Redis");
    let commands: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("redis-cli FUNCTION ")).collect();
    let [list, delete] = commands[..] else { panic!("{commands:?}") };
    let deleted = delete.strip_prefix("DELETE ").expect("a name");

    let server = Server::listening(&[]);
    let other = library().text.replace(&library().name, deleted);
    server.client().run(&["FUNCTION", "LOAD", &other]);
    let url = format!("redis://{}", server.address());
    let weir = over(&url, RULES).store_timeout("5s").start();
    ready(&weir);
    assert_eq!(remaining(&weir, 2), Some(498));
    let listed = redis_cli(&server, &format!("FUNCTION {list}"));
    for name in [deleted, library().name.as_str()] {
        assert!(listed.contains(name), "{listed}");
    }
    assert_eq!(redis_cli(&server, &format!("FUNCTION {delete}")).trim(), "OK");
    let found = ["weir_*", deleted].map(|pattern| libraries(&server, pattern));
    assert_eq!(found, [1, 0]);
    assert_eq!(remaining(&weir, 2), Some(496));
}

/// Flushed functions are loaded again, and no hit is lost or counted twice.
#[test]
fn flushed_functions_are_loaded_again() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let url = format!("redis://{}", server.address());
    let weir = over(&url, RULES).store_timeout("20s").start();
    ready(&weir);
    let hot: MakeRequest = Arc::new(|_| request("d", vec![descriptor(&[("k", "hot")])]));
    let load = Load::start(&[weir.grpc], 16, hot);
    let mut admin = server.client();
    for _ in 0..50 {
        admin.run(&["FUNCTION", "FLUSH"]);
        load.wait_for_more(10);
    }
    let client = weir.client();
    until("the limit is reached", || client.remaining("d", &[("k", "hot")]) == 0);
    let answers = load.stop();
    figures("functions flushed 50 times", answers.iter());
    assert_eq!(answers.iter().find_map(LoadResult::fallback), None);
    assert_eq!(answers.iter().filter(|answer| answer.passed(0)).count(), 500);
    assert!(calls(&weir).0 > 0, "functions were used");
}

/// A peek alone in its call succeeds although Redis refuses functions.
#[test]
fn a_lone_peek_succeeds_while_memory_is_full() {
    let _permit = shared();
    let server = Server::listening(&["--maxmemory-policy", "noeviction"]);
    let url = format!("redis://{}", server.address());
    let weir = over(&url, RULES).store_timeout("5s").start();
    ready(&weir);
    assert_eq!(remaining(&weir, 2), Some(498));
    assert!(calls(&weir).0 > 0, "functions are used");
    server.client().run(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!([remaining(&weir, 0), remaining(&weir, 1)], [Some(498), None]);
    server.client().run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(remaining(&weir, 1), Some(497));
}

/// A replica has the library of its primary. A new primary without it gets it.
#[test]
fn the_new_primary_runs_functions() {
    let _permit = exclusive();
    let mut watched = Watched::start();
    let weir = over(&watched.url(), RULES).store_timeout("1s").start();
    ready(&weir);
    assert_eq!(remaining(&weir, 2), Some(498));
    let function = Script::Entries.function();
    until("the replica has the library", || {
        // A replica refuses a function that it has, because the function may write.
        let reply = watched.servers[1].client().try_run(&["FCALL", function, "0"]);
        reply.expect("an answer").text().starts_with("READONLY")
    });
    watched.servers[0].kill();
    watched.wait_for_failover();
    until("the new primary counts", || remaining(&weir, 1).is_some());
    let (before, _) = calls(&weir);
    watched.servers[1].client().run(&["FUNCTION", "FLUSH"]);
    until("the new primary runs functions", || {
        assert!(remaining(&weir, 0).is_some(), "no call fails");
        calls(&weir).0 > before + 1
    });
    let reply = watched.servers[1].client().run(&["FCALL", function, "0"]);
    assert_eq!(reply.text(), "", "the library was loaded again");
}
