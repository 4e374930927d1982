//! Floods: the Redis calls that a counter at its limit costs.

use std::sync::Arc;
use std::time::Instant;

use crate::support::http;
use crate::support::load::{figures, send_all};
use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, request};
use crate::support::schedule::shared;
use crate::support::weir::Weir;

const CALLERS: usize = 16;

const RULES: &str = "
domain: d
descriptors:
  - key: fixed_window
    rate_limit: { requests: 50, window: 1000d }
  - key: token_bucket
    rate_limit: { algorithm: token_bucket, requests: 50, window: 1000d }
  - key: sliding_window_log
    rate_limit: { algorithm: sliding_window_log, requests: 50, window: 1000d }
  - key: uncached
    rate_limit: { requests: 50, window: 1000d, over_limit_cache: false }
";

/// 100 000 requests to a counter at its limit cost at most one Redis call per client and second,
/// because a denial is cached for at most one second.
#[test]
fn a_full_counter_costs_few_redis_calls() {
    let _permit = shared();
    let server = Server::local();
    let url = format!("redis+unix://{}", server.socket().display());
    let weir = over(&url, RULES).store_timeout("20s").start();
    // Without batching each decision that needs Redis is one call, so calls can be counted.
    let one_by_one =
        over(&url, RULES).store_timeout("20s").env("WEIR__REDIS__MAX_BATCH_SIZE", "1").start();
    ready(&weir);
    ready(&one_by_one);
    let check = |weir: &Weir, key: &'static str, requests| {
        let question = Arc::new(move |_| request("d", vec![descriptor(&[(key, "x")])]));
        server.client().run(&["CONFIG", "RESETSTAT"]);
        let answers = send_all(&[weir.grpc], CALLERS, requests, question);
        assert!(answers.iter().all(|answer| answer.fallback().is_none()));
        (answers, server.script_calls())
    };
    let floods =
        [("fixed_window", 100_000), ("token_bucket", 5_000), ("sliding_window_log", 5_000)];
    let mut allowed_calls = 0;
    for (key, requests) in floods {
        let (filling, _) = check(&weir, key, 50);
        assert_eq!(filling.iter().filter(|answer| answer.passed(0)).count(), 50);
        let began = Instant::now();
        let (answers, calls) = check(&weir, key, requests);
        // In each second that has begun: the calls that were sent before its first denial arrived.
        let most = CALLERS as u64 * (began.elapsed().as_secs() + 2);
        allowed_calls += most as usize;
        figures(&format!("{key}: {calls} calls"), answers.iter());
        assert_eq!(answers.iter().filter(|answer| answer.passed(0)).count(), 0);
        assert!(calls <= most && most < requests as u64 / 10, "{calls} calls, at most {most}");
    }
    let metrics = http::get(weir.admin, "/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with("weir_over_limit_cache_denied_total "));
    let denied: usize = line.expect("shown").rsplit(' ').next().unwrap().parse().unwrap();
    assert!(denied >= 110_000 - allowed_calls, "{denied}");

    check(&one_by_one, "uncached", 50);
    assert_eq!(check(&one_by_one, "uncached", 1_000).1, 1_000, "switched off for this rule");
}

#[test]
fn the_over_limit_cache_can_be_disabled() {
    let _permit = shared();
    let server = Server::local();
    let weir = over(&format!("redis+unix://{}", server.socket().display()), RULES)
        .store_timeout("20s")
        // Without batching each decision that needs Redis is one call.
        .env("WEIR__REDIS__MAX_BATCH_SIZE", "1")
        .env("WEIR__STORE__OVER_LIMIT_CACHE", "false")
        .start();
    ready(&weir);
    let question = Arc::new(|_| request("d", vec![descriptor(&[("token_bucket", "x")])]));
    server.client().run(&["CONFIG", "RESETSTAT"]);
    send_all(&[weir.grpc], CALLERS, 1_000, question);
    assert_eq!(server.script_calls(), 1_000);
}
