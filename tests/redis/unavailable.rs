//! Redis is unavailable: at start, for a while, or because it returns errors.

use std::time::Instant;

use crate::support::http;
use crate::support::on_redis::{cluster_url, over, ready};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::proxy::Proxy;
use crate::support::redis::server::Server;
use crate::support::rls::{Code, RateLimitResponse, costing, descriptor, headers, request};
use crate::support::schedule::shared;
use crate::support::wait::until;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: allow
    rate_limit: { requests: 4, window: 1000d, on_error: allow }
  - key: deny
    rate_limit: { requests: 4, window: 1000d, on_error: deny }
  - key: local
    rate_limit: { requests: 4, window: 1000d, on_error: local }
  - key: default
    rate_limit: { requests: 4, window: 1000d }
";

fn check(weir: &Weir, key: &str) -> RateLimitResponse {
    weir.client().check(request("d", vec![descriptor(&[(key, "x")])]))
}

/// The decision header.
fn decision(answer: &RateLimitResponse) -> String {
    let headers = headers(answer);
    let found = headers.iter().find(|(name, _)| *name == "x-weir-decision");
    found.expect("every response has the header").1.to_owned()
}

fn passed(answer: &RateLimitResponse) -> bool {
    answer.overall_code == i32::from(Code::Ok)
}

/// weir starts without Redis, decides by fallback, and counts in Redis once it is there.
#[test]
fn fallback_decides_until_redis_is_reachable() {
    let _permit = shared();
    let mut server = Server::listening(&[]);
    server.kill();
    let weir = over(&format!("redis://{}", server.address()), RULES)
        .store_timeout("5s")
        .env("WEIR__FALLBACK__INSTANCES", "2")
        .start();
    assert_eq!(http::get(weir.http, "/healthcheck").status, 200, "the process is alive");
    assert_eq!(http::get(weir.http, "/readyz").status, 503, "readiness follows Redis");
    for _ in 0..10 {
        let answer = check(&weir, "allow");
        assert!(passed(&answer));
        assert_eq!(decision(&answer), "rule=allow;mode=exact;fallback=allow;cause=unreachable");
        assert!(!passed(&check(&weir, "deny")));
        assert!(passed(&check(&weir, "default")), "allow is the default");
    }
    let local: Vec<bool> = (0..4).map(|_| passed(&check(&weir, "local"))).collect();
    assert_eq!(local, [true, true, false, false], "half of 4, as there are two instances");
    let metrics = http::get(weir.admin, "/metrics").body;
    let line = "weir_fallback_total{domain=\"d\",rule=\"deny\",cause=\"unreachable\"} 10";
    assert!(metrics.contains(line), "{metrics}");

    server.restart();
    let restarted = Instant::now();
    ready(&weir);
    eprintln!("ready {:?} after Redis was", restarted.elapsed());
    let answer = check(&weir, "deny");
    assert_eq!(decision(&answer), "rule=deny;mode=exact;fallback=none");
    assert_eq!(answer.statuses[0].limit_remaining, 3, "nothing was counted before");
    assert_eq!(check(&weir, "local").statuses[0].limit_remaining, 3);
}

/// weir starts while the whole cluster is down and counts in it once it is up.
#[test]
fn a_cluster_that_starts_late_is_used() {
    let _permit = shared();
    let mut cluster = Cluster::start();
    cluster.nodes.iter_mut().for_each(Server::kill);
    let weirs = [0, 1].map(|_| over(&cluster_url(&cluster), RULES).store_timeout("5s").start());
    for weir in &weirs {
        for _ in 0..10 {
            let answer = check(weir, "allow");
            assert!(passed(&answer), "{answer:?}");
            assert!(decision(&answer).ends_with("cause=unreachable"), "{answer:?}");
        }
    }
    cluster.nodes.iter_mut().for_each(Server::restart);
    cluster.wait_until_whole();
    let whole = Instant::now();
    let keys = ["allow", "deny", "local", "default"];
    let counts = |weir: &Weir| {
        let looks = keys.map(|key| costing(0, descriptor(&[(key, "x")])));
        let answer = weir.client().check(request("d", looks.to_vec()));
        !decision(&answer).contains("cause=")
    };
    until("both instances count", || weirs.iter().all(counts));
    eprintln!("all count {:?} after the cluster was whole", whole.elapsed());
    for key in keys {
        let answers = (0..8).map(|n| check(&weirs[n % 2], key));
        assert_eq!(answers.filter(passed).count(), 4, "{key}");
    }
}

#[test]
fn readiness_ignores_redis_by_default() {
    let _permit = shared();
    let mut server = Server::listening(&[]);
    server.kill();
    let weir = over(&format!("redis://{}", server.address()), RULES)
        .env("WEIR__READYZ__REQUIRE_STORE", "false")
        .start();
    assert_eq!(http::get(weir.http, "/readyz").status, 200);
}

/// A weir process that is connected to `server`, with a long store timeout.
fn connected(server: &Server, url: &str) -> Weir {
    let weir = over(url, RULES).store_timeout("5s").start();
    ready(&weir);
    assert_eq!(server.client().run(&["PING"]).text(), "PONG");
    weir
}

#[test]
fn a_full_redis_refuses_until_it_has_room() {
    let _permit = shared();
    let server = Server::listening(&["--maxmemory-policy", "noeviction"]);
    let weir = connected(&server, &format!("redis://{}", server.address()));
    server.client().run(&["CONFIG", "SET", "maxmemory", "1"]);
    let answer = check(&weir, "deny");
    assert_eq!(decision(&answer), "rule=deny;mode=exact;fallback=deny;cause=error_reply");
    assert!(!passed(&answer));
    server.client().run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(check(&weir, "deny").statuses[0].limit_remaining, 3);
}

/// A step on a key that another application uses fails, and its value is never misread.
#[test]
fn a_key_of_another_type_is_refused() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let weir = connected(&server, &format!("redis://{}", server.address()));
    assert!(passed(&check(&weir, "deny")));
    let mut client = server.client();
    let name = match client.run(&["KEYS", "weir:*"]) {
        crate::support::redis::resp::Reply::List(names) => names[0].text(),
        other => panic!("{other:?}"),
    };
    client.run(&["DEL", &name]);
    client.run(&["RPUSH", &name, "nonsense"]);
    let answer = check(&weir, "deny");
    assert_eq!(decision(&answer), "rule=deny;mode=exact;fallback=deny;cause=error_reply");
}

/// Each step waits for an event, so a busy machine only makes the test longer.
#[test]
fn a_half_open_connection_is_replaced() {
    let _permit = shared();
    let server = Server::listening(&[]);
    let proxy = Proxy::to(server.address());
    let weir = over(&format!("redis://{}", proxy.address()), RULES).store_timeout("50ms").start();
    ready(&weir);
    until("Redis counts", || decision(&check(&weir, "allow")).ends_with("fallback=none"));
    proxy.silence();
    until("a call times out", || decision(&check(&weir, "allow")).contains("cause=timeout"));
    let decided = || decision(&check(&weir, "allow"));
    until("the breaker is open", || decided().contains("cause=breaker_open"));
    proxy.heal();
    until("Redis counts again", || decision(&check(&weir, "allow")).ends_with("fallback=none"));
    proxy.cut();
    until("Redis counts after a cut", || decided().ends_with("fallback=none"));
}

/// With `readyz.require_store`, readiness ends with Redis and returns with it.
#[test]
fn readiness_can_follow_redis() {
    let _permit = shared();
    let mut server = Server::listening(&[]);
    let weir = connected(&server, &format!("redis://{}", server.address()));
    server.kill();
    until("the instance is not ready", || http::get(weir.http, "/readyz").status == 503);
    assert_eq!(http::get(weir.http, "/livez").status, 200, "the process is alive");
    assert!(passed(&check(&weir, "allow")));
    server.restart();
    ready(&weir);
    assert_eq!(decision(&check(&weir, "deny")), "rule=deny;mode=exact;fallback=none");
}
