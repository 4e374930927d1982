//! An idle instance sleeps: its background thread has no work for counters that it does not keep.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rls::{descriptor, request};
use crate::support::schedule::exclusive;
use crate::support::weir::Weir;

const RULES: &str = "
domain: d
descriptors:
  - key: exact
    rate_limit: { requests: 1000, window: 1000d }
  - key: leased
    rate_limit: { requests: 1000, window: 1000d, mode: leased }
  - key: synced
    rate_limit: { requests: 1000, window: 1000d, mode: synced }
";

/// How often the background thread was woken up so far.
fn wake_ups(weir: &mut Weir) -> u64 {
    let tasks = format!("/proc/{}/task", weir.process().pid());
    for task in fs::read_dir(tasks).expect("a running process").flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim() == "weir-background" {
            let status = read("status");
            let field = "voluntary_ctxt_switches:";
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            return line.expect("the kernel counts them").trim().parse().expect("a number");
        }
    }
    panic!("the thread has another name");
}

/// Wake-ups per second.
fn rate(weir: &mut Weir) -> f64 {
    let (before, start) = (wake_ups(weir), Instant::now());
    sleep(Duration::from_secs(2));
    (wake_ups(weir) - before) as f64 / start.elapsed().as_secs_f64()
}

/// The job of the modes woke up a hundred times per second, whatever the rules. The health is looked at ten times.
#[test]
fn the_background_thread_of_an_idle_instance_sleeps() {
    let _permit = exclusive();
    let server = Server::local();
    let weir =
        over(&format!("redis+unix://{}", server.socket().display()), RULES).store_timeout("5s");
    let mut weir = weir.start();
    ready(&weir);
    let client = weir.client();
    let check = |key: &str| client.check(request("d", vec![descriptor(&[(key, "x")])]));
    check("exact");
    let idle = rate(&mut weir);
    assert!(idle < 40.0, "{idle} wake-ups per second");
    // Counters that an instance keeps have work, but not a hundred times per second.
    (0..9).for_each(|_| drop(check("leased")));
    check("synced");
    let kept = rate(&mut weir);
    assert!(kept < 70.0, "{kept} wake-ups per second");
}
