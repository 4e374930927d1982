//! The state of the process on the admin port: its health, its parts, and what is wrong.

use serde_json::{Value, json};

use super::{AdminPages, rfc_3339};
use crate::app::activity::series;
use crate::escape::excerpt;
use crate::store::guarded::BreakerState;
use crate::telemetry::DecisionRates;
use crate::time::{Clock, Micros};

/// Longest error in a problem, in characters. The page of the part has the whole.
const ERROR_CHARS_MAX: usize = 500;

/// Days before its end from which a certificate is a problem.
const DAYS_LEFT_MIN: f64 = 14.0;

/// The problems, each with its part and a sentence with what to do. The page announces a new text, so a text
/// has no number that changes all the time.
#[derive(Default)]
struct StatusProblems(Vec<Value>);

impl StatusProblems {
    fn add(&mut self, part: &str, text: impl Into<String>) {
        self.0.push(json!({ "part": part, "text": text.into() }));
    }
}

/// The whole state.
pub(super) fn page(pages: &AdminPages) -> Value {
    let (now, mut problems) = (pages.clock.now(), StatusProblems::default());
    let active = pages.rules.snapshot_owned();
    let decisions = pages.recorder.decisions.activity(series(&active), |reader| reader.rates());
    let all = &pages.all_metrics;
    let store = store(pages, &mut problems);
    fallback(decisions, &mut problems);
    let rules = json!({
        "loaded_at": rfc_3339(active.loaded_at),
        "domains": active.rules.domains().len(),
        "rules": active.rules.rules().len(),
        "files": active.rules.files().len(),
        "warnings": active.warnings.len(),
        "last_error": pages.rules.last_error().as_deref(),
    });
    if let Some(error) = pages.rules.last_error() {
        let error = excerpt(&error, ERROR_CHARS_MAX);
        let text = format!(
            "the last rule files are refused, and the rules before stay; correct them: {error}"
        );
        problems.add("rules", text);
    }
    let (xds, plans) = (xds(pages, &mut problems), plans(pages, &mut problems));
    let changes = changes(pages, now, &mut problems);
    let certificates = certificates(pages, now, &mut problems);
    let rlqs = pages.rlqs.as_ref().map(|engine| {
        let metrics = engine.metrics();
        json!({ "streams": metrics.streams.get(), "buckets": metrics.buckets.get() })
    });
    json!({
        "at": rfc_3339(now),
        "version": env!("CARGO_PKG_VERSION"),
        "host": pages.host,
        "started_at": rfc_3339(all.started),
        "uptime_seconds": seconds(now.saturating_sub(all.started)),
        "health": health(pages),
        "problems": problems.0,
        "decisions": decisions,
        "store": store,
        "rules": rules,
        "xds": xds,
        "plans": plans,
        "changes": changes,
        "rlqs": rlqs,
        "certificates": certificates,
        "connections": connections(pages),
        "viewers": all.server.live_viewers.get(),
    })
}

fn health(pages: &AdminPages) -> &'static str {
    if *pages.shutdown.borrow() {
        return "draining";
    }
    if pages.health.borrow().ready { "serving" } else { "not_ready" }
}

fn store(pages: &AdminPages, problems: &mut StatusProblems) -> Value {
    if let Some(memory) = pages.limiter.backend().memory() {
        let (stats, max) = (memory.snapshot(), pages.settings.store.max_counters);
        if stats.counters as usize >= max - max / 10 {
            let text = "the memory store has almost store.max_counters counters, and evicts some \
                        at the maximum; raise store.max_counters";
            problems.add("store", text);
        }
        return json!({
            "kind": "memory",
            "counters": stats.counters,
            "counters_max": max,
            "evicted": stats.evicted,
        });
    }
    let Some(guarded) = pages.limiter.backend().shared_store() else { return Value::Null };
    let reachable = guarded.store().is_reachable();
    if !reachable {
        let text = "Redis is not connected, and rules decide by their on_error; check redis.url, \
                    the network and the server";
        problems.add("redis", text);
    }
    let mut nodes = Vec::new();
    for (id, name) in guarded.store().nodes() {
        let (guard, sent) = (guarded.snapshot(id), guarded.store().node_snapshot(id));
        let breaker = match guard.breaker {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::Probing => "probing",
        };
        if reachable && guard.breaker != BreakerState::Closed {
            let text = format!(
                "the Redis node {} does not answer, and its breaker is {breaker}; check this \
                 node and the network to it",
                excerpt(&name, ERROR_CHARS_MAX)
            );
            problems.add("redis", text);
        }
        nodes.push(json!({
            "node": name,
            "breaker": breaker,
            "reachable": guard.has_no_failure,
            "calls": sent.calls,
            "errors": guard.errors.iter().sum::<u64>(),
        }));
    }
    json!({
        "kind": "redis",
        // `Display` masks the password.
        "url": pages.settings.redis.url.to_string(),
        "reachable": reachable,
        "nodes": nodes,
    })
}

fn fallback(decisions: Option<DecisionRates>, problems: &mut StatusProblems) {
    let rate = decisions.map_or(0.0, |rates| rates.fallback_per_second);
    if rate > 0.0 {
        let text = "the fallback makes decisions, because the store does not decide; see \
                    weir_fallback_total for the rules and causes";
        problems.add("fallback", text);
    }
}

fn xds(pages: &AdminPages, problems: &mut StatusProblems) -> Value {
    let Some(status) = &pages.all_metrics.xds else { return Value::Null };
    let (error, connected) = (pages.rules.xds_error(), status.is_connected());
    if !connected {
        let text = "there is no connection to rules.xds.server, and the rules before stay; \
                    check the server and the log";
        problems.add("xds", text);
    }
    if let Some(error) = &error {
        let error = excerpt(error, ERROR_CHARS_MAX);
        let text =
            format!("the last response of the xDS server has errors; correct them there: {error}");
        problems.add("xds", text);
    }
    json!({
        "server": pages.settings.xds.server,
        "connected": connected,
        "version": status.version().as_deref(),
        "last_error": error.as_deref(),
    })
}

fn plans(pages: &AdminPages, problems: &mut StatusProblems) -> Value {
    let Some(view) = &pages.plans else { return Value::Null };
    let (status, source) = (view.plans.status(), &view.status);
    let error = source.error();
    if let Some(error) = &error {
        let error = excerpt(error, ERROR_CHARS_MAX);
        let text = format!("the plans cannot be read, and the last ones stay; see /plans: {error}");
        problems.add("plans", text);
    }
    json!({
        "source": source.source(),
        "plans": status.plans,
        "customers": status.customers,
        "read_at": source.confirmed().map(rfc_3339),
        "last_error": error.as_deref(),
    })
}

fn changes(pages: &AdminPages, local: Micros, problems: &mut StatusProblems) -> Value {
    let Some(current) = pages.limiter.changes() else {
        return json!({ "active": 0, "last_error": null });
    };
    let (all, now, error) = (current.all(), current.now(local), current.last_error());
    if let Some(error) = &error {
        let error = excerpt(error, ERROR_CHARS_MAX);
        let text = format!(
            "temporary changes cannot be read, and the last ones stay; check Redis: {error}"
        );
        problems.add("changes", text);
    }
    let unreadable = current.unreadable().len();
    if unreadable > 0 {
        let text = format!(
            "{unreadable} temporary changes are unreadable and have no effect; end them with the \
             version that made them, see /changes"
        );
        problems.add("changes", text);
    }
    let active = all.list().iter().filter(|listed| listed.change.is_active(now)).count();
    json!({ "active": active, "last_error": error.as_deref() })
}

/// The certificates of this process that have an end.
fn certificates(pages: &AdminPages, now: Micros, problems: &mut StatusProblems) -> Vec<Value> {
    let all = &pages.all_metrics;
    let xds = all.xds.as_ref().map_or(0, |status| status.certificate_expiry());
    let known = [("grpc", all.server.tls_expiry.get()), ("xds", xds)];
    let known = known.into_iter().filter(|(_, expiry)| *expiry > 0);
    let mut shown = Vec::new();
    for (of, expiry) in known {
        let left = expiry as f64 - now.0 as f64 / 1e6;
        let days = (left / 86_400.0 * 10.0).floor() / 10.0;
        if days < DAYS_LEFT_MIN {
            let end = if days < 0.0 {
                "has expired".to_owned()
            } else {
                format!("expires in {days} days")
            };
            problems
                .add("certificates", format!("the certificate for {of} {end}; replace its file"));
        }
        let expires_at = rfc_3339(Micros::from_secs(expiry));
        shown.push(json!({ "for": of, "expires_at": expires_at, "days_left": days }));
    }
    shown
}

fn connections(pages: &AdminPages) -> Value {
    let server = &pages.all_metrics.server;
    let ports = [&server.grpc, &server.http, &server.admin, &server.metrics];
    let refused: u64 =
        ports.iter().map(|port| port.refused_total.get() + port.refused_peer.get()).sum();
    json!({
        "grpc": server.grpc.open.get(),
        "http": server.http.open.get(),
        "admin": server.admin.open.get(),
        "refused": refused,
    })
}

fn seconds(duration: Micros) -> f64 {
    (duration.0 / 1_000) as f64 / 1e3
}

/// The name of this machine; `None` if the system does not have it.
pub(in crate::app) fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(excerpt(name.trim(), 255)).filter(|name| !name.is_empty())
}
