//! Guarantees of docs/guides/modes.md and docs/guides/concurrency.md with a distant Redis: 1, 6 or 60 ms
//! away.
//!
//! At that distance, other requests arrive between a call and its reply. Counts must be right
//! nevertheless, as must the time after which another instance allows hits that were given back.

mod given_back;
mod leased_bucket;
mod orderly_end;
mod synced_counts;
mod timed_calls;

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::http;
use crate::support::on_redis::{over, ready};
use crate::support::rls::{Code, RateLimitResponse, costing, descriptor, headers, request};
use crate::support::wait::until;
use crate::support::weir::Weir;

/// The round trips to Redis: in a zone, in a region, and between regions.
const ROUND_TRIPS: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(6), Duration::from_millis(60)];

/// Starts an instance with the Redis at `redis`, and waits until the rules of `keys` in domain `d`
/// count there. The fallback denies, so a request passes only if it is counted.
fn start(redis: SocketAddr, rules: &str, store_timeout: &str, keys: &[&str]) -> Weir {
    let weir = over(&format!("redis://{redis}"), rules)
        .store_timeout(store_timeout)
        .env("WEIR__FALLBACK__ON_ERROR", "deny")
        .start();
    ready(&weir);
    // The first call may have to load a script, so it takes several round trips.
    let peeks = keys.iter().map(|&key| costing(0, descriptor(&[(key, "warm")])));
    let peeks = request("d", peeks.collect());
    let client = weir.client();
    until("every rule counts in Redis", || !fell_back(&client.check(peeks.clone())));
    weir
}

/// Whether the fallback decided any descriptor.
fn fell_back(answer: &RateLimitResponse) -> bool {
    headers(answer).iter().any(|(_, value)| value.contains("cause="))
}

fn passed(answer: &RateLimitResponse) -> bool {
    answer.overall_code == i32::from(Code::Ok)
}

/// The value of counter `number` of the instance at this distance. All instances share one Redis.
fn value(round_trip: Duration, number: impl std::fmt::Display) -> String {
    format!("{}-{number}", round_trip.as_millis())
}

/// The hits of a counter in Redis, whatever the mode of its rule.
fn used(reader: &Weir, key: &str, value: &str) -> u64 {
    let path = format!("/counters?domain=d&descriptor={key}={value}");
    let shown = http::get(reader.admin, &path).json();
    shown["tiers"][0]["used"].as_u64().unwrap_or_else(|| panic!("{path}: {shown}"))
}
