//! Slots of a concurrency limit while connections are lost and Redis stalls.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use envoy_types::pb::google::protobuf::value::Kind;

use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rls::{RateLimitResponse, descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::wait::until;
use crate::support::weir::Weir;

/// The slots do not expire during the test, so that every free slot was released.
const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { algorithm: concurrency, max: 32, hold: 1h }
";

const MAX: u32 = 32;

/// Clients that acquire and release slots.
const CLIENTS: usize = 8;

/// Connections that are killed.
const KILLS: usize = 20;

/// The lease of a response that has acquired a slot in Redis.
pub(crate) fn lease(answer: &RateLimitResponse) -> Option<String> {
    let Kind::StructValue(lease) =
        answer.dynamic_metadata.as_ref()?.fields.get("lease")?.kind.as_ref()?
    else {
        return None;
    };
    match lease.fields.get("id")?.kind.as_ref()? {
        Kind::StringValue(id) => Some(id.clone()),
        _ => None,
    }
}

/// Acquires and releases slots until `stop`. Releases what it has acquired.
fn acquire_and_release(weir: &Weir, stop: &AtomicBool, acquired: &AtomicUsize) {
    let client = weir.client();
    while !stop.load(Ordering::Relaxed) {
        let answer = client.check(request("d", vec![descriptor(&[("k", "x")])]));
        if let Some(id) = lease(&answer) {
            acquired.fetch_add(1, Ordering::Relaxed);
            client.check(request("d", vec![descriptor(&[("k", "x"), ("lease", &id)])]));
        }
    }
}

/// Every slot is free again soon after Redis is back: those of acquires without a response, and
/// those whose release was lost.
#[test]
fn no_slot_stays_taken_after_a_lost_connection() {
    let _permit = exclusive();
    let server = Server::listening(&[]);
    let url = format!("redis://{}", server.address());
    let weir = over(&url, RULES).store_timeout("50ms").start();
    ready(&weir);
    let (stop, acquired) = (AtomicBool::new(false), AtomicUsize::new(0));
    let wait_for_more = |count: usize| {
        let until_acquired = acquired.load(Ordering::Relaxed) + count;
        until("slots are acquired", || acquired.load(Ordering::Relaxed) >= until_acquired);
    };
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| acquire_and_release(&weir, &stop, &acquired));
        }
        for kill in 0..KILLS {
            wait_for_more(20);
            server.client().run(&["CLIENT", "KILL", "TYPE", "normal"]);
            if kill % 5 == 0 {
                wait_for_more(20);
                server.process().freeze();
                // The fixed pause is the stall that is tested: several times the store timeout.
                thread::sleep(Duration::from_millis(300));
                server.process().thaw();
            }
        }
        wait_for_more(20);
        stop.store(true, Ordering::Relaxed);
    });
    let client = weir.client();
    until("every slot is free", || client.remaining("d", &[("k", "x")]) == MAX);
}
