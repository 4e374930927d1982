//! Steady traffic to instances that may be killed or stopped meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::oracle::Passed;
use crate::support::rls::{Client, Code, RateLimitDescriptor, request};
use crate::support::wait::until;
use crate::support::weir::Weir;
use crate::time::Micros;

/// Callers of each instance.
const CALLERS: usize = 3;

/// Between the calls of one caller.
const PAUSE: Duration = Duration::from_millis(6);

/// How far an instance's idea of a node's clock may be off.
const CLOCKS: Micros = Micros::from_millis(3);

/// Makes a question about counter number `n`.
pub(crate) type Question = Arc<dyn Fn(usize) -> RateLimitDescriptor + Send + Sync>;

/// Callers at work. They give up when their instance does.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    passed: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<Vec<(usize, Passed)>>>,
}

impl Traffic {
    /// Asks all instances about `counters` counters, one after the other.
    pub(crate) fn start(instances: &[&Weir], counters: usize, question: Question) -> Traffic {
        let (stop, passed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut callers = Vec::new();
        for instance in instances {
            for caller in 0..CALLERS {
                let client = instance.client();
                let (stop, passed, question) = (stop.clone(), passed.clone(), question.clone());
                callers.push(thread::spawn(move || {
                    let counter = (caller..).map(|n| n % counters);
                    call(&client, counter, &stop, &passed, &question)
                }));
            }
        }
        Traffic { stop, passed, callers }
    }

    /// How many have passed.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }

    /// Waits until so many have passed.
    pub(crate) fn wait_for(&self, passed: usize) {
        until("requests pass", || self.passed() >= passed);
    }

    /// Waits until so many more have passed.
    pub(crate) fn wait_for_more(&self, passed: usize) {
        self.wait_for(self.passed() + passed);
    }

    /// Stops, and gives all that passed, with the number of the counter.
    pub(crate) fn stop(self) -> Vec<(usize, Passed)> {
        self.stop.store(true, Ordering::Relaxed);
        let all = self.callers.into_iter().map(|caller| caller.join().expect("no caller panics"));
        all.flatten().collect()
    }
}

fn call(
    client: &Client,
    counters: impl Iterator<Item = usize>,
    stop: &AtomicBool,
    count: &AtomicUsize,
    question: &Question,
) -> Vec<(usize, Passed)> {
    let mut passed = Vec::new();
    for counter in counters {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let from = now().saturating_sub(CLOCKS);
        let Ok(answer) = client.try_ask(request("d", vec![question(counter)])) else { break };
        let to = now().saturating_add(CLOCKS);
        if answer.overall_code == i32::from(Code::Ok) {
            count.fetch_add(1, Ordering::Relaxed);
            passed.push((counter, Passed { hits: 1, from, to }));
        }
        thread::sleep(PAUSE);
    }
    passed
}

/// The machine's clock, which is that of the nodes.
pub(crate) fn now() -> Micros {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Micros(u64::try_from(now.as_micros()).expect("before the year 586912"))
}
