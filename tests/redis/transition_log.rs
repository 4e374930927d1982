//! The log: state changes are logged once, requests never.

use serde_json::Value;

use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rls::{Client, descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { requests: 1000000, window: 1000d }
";

const REQUESTS: usize = 300;

fn check(client: &Client) {
    client.check(request("d", vec![descriptor(&[("user", "ann")])]));
}

fn says(line: &str, message: &str) -> Option<Value> {
    let line: Value = serde_json::from_str(line).ok()?;
    line["message"].as_str()?.starts_with(message).then_some(line)
}

/// The begin and the end of a fallback and of an open breaker are logged once; requests never.
#[test]
fn state_changes_are_logged_and_requests_are_not() {
    let _permit = exclusive();
    let redis = Server::listening(&[]);
    // A long timeout, so that a busy machine does not look like a fault of Redis.
    let mut weir =
        over(&format!("redis://{}", redis.address()), RULES).store_timeout("300ms").start();
    ready(&weir);
    let client = weir.client();
    let before = weir.process().output().lines().count();
    (0..REQUESTS).for_each(|_| check(&client));
    let after = weir.process().output().lines().count();
    assert_eq!(after, before, "{}", weir.process().output());
    redis.process().freeze();
    let wait = |weir: &mut crate::support::weir::Weir, message: &str| {
        weir.process().wait_for(message, |line| says(line, message))
    };
    let logged = |weir: &mut crate::support::weir::Weir, message: &str| {
        let output = weir.process().output();
        output.lines().filter(|line| says(line, message).is_some()).count()
    };
    until("the breaker opens", || {
        check(&client);
        logged(&mut weir, "breaker opened") > 0
    });
    (0..REQUESTS).for_each(|_| check(&client));
    let began = wait(&mut weir, "fallback started");
    assert_eq!((&began["level"], &began["domain"]), (&"WARN".into(), &"d".into()));
    assert_eq!(began["rule"], "user");
    redis.process().thaw();
    until("the breaker closes", || {
        check(&client);
        logged(&mut weir, "breaker closed") > 0
    });
    // The period ends with a decision of Redis, 5 s after the last fallback.
    until("the fallback ends", || {
        check(&client);
        logged(&mut weir, "fallback ended") > 0
    });
    let ended = wait(&mut weir, "fallback ended");
    assert!(ended["fallbacks"].as_u64() > Some(REQUESTS as u64 / 2), "{ended}");
    for message in ["fallback started", "breaker opened", "breaker closed", "fallback ended"] {
        let lines = logged(&mut weir, message);
        assert_eq!(lines, 1, "{message}: {}", weir.process().output());
    }
}
