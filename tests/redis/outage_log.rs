//! The log and the metrics while Redis cannot be used: they name the cause from the start.

use serde_json::Value;

use crate::support::http::get;
use crate::support::on_redis::over;
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, request};
use crate::support::schedule::shared;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 5, window: 1000d }
";

/// Starts weir over `url`, and returns it with the first line `message`.
fn first_line(url: &str, message: &str) -> (Weir, Value) {
    let mut weir = over(url, RULES).start();
    let client = weir.client();
    let line = weir.process().wait_for(message, |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["message"] == message).then_some(line)
    });
    // Requests are answered meanwhile.
    client.check(request("d", vec![descriptor(&[("k", "x")])]));
    (weir, line)
}

#[test]
fn an_unreachable_cluster_is_logged_and_measured() {
    let _permit = shared();
    let (weir, line) = first_line("redis-cluster://127.0.0.1:1", "no connection to Redis");
    assert_eq!((&line["level"], &line["node"]), (&"WARN".into(), &"cluster at 127.0.0.1:1".into()));
    let error = line["error"].as_str().expect("a text");
    assert!(error.starts_with("127.0.0.1:1: ") && error.contains("refused"), "{error}");
    let page = get(weir.admin, "/metrics").body;
    assert!(page.contains("\nweir_redis_reachable 0\n"), "{page}");
    let state = "\nweir_redis_breaker_state{node=\"cluster at 127.0.0.1:1\"} ";
    assert!(page.contains(state), "{page}");
}

#[test]
fn an_unknown_host_of_a_cluster_is_logged() {
    let _permit = shared();
    let (_weir, line) = first_line("redis-cluster://nohost.invalid:1", "no connection to Redis");
    let error = line["error"].as_str().expect("a text");
    assert!(error.starts_with("nohost.invalid:1: "), "{error}");
}

#[test]
fn a_server_that_is_no_cluster_is_logged() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let url = format!("redis-cluster://{}", server.address());
    let (_weir, line) = first_line(&url, "no connection to Redis");
    let error = line["error"].as_str().expect("a text");
    assert!(error.contains("ERR This instance has cluster support disabled"), "{error}");
}

/// Without `+time` weir cannot count. The log has the text of Redis.
#[test]
fn a_refused_command_is_logged() {
    let _permit = shared();
    let server = Server::listening(&[]);
    server.client().run(&["ACL", "SETUSER", "weir", "on", ">secret", "~*", "+@all", "-time"]);
    let url = format!("redis://weir:secret@{}", server.address());
    let (_weir, line) = first_line(&url, "Redis replied with an error");
    let error = line["error"].as_str().expect("a text");
    assert!(error.starts_with("NOPERM ") && error.contains("time"), "{error}");
    assert_eq!(line["node"], server.address().to_string());
}
