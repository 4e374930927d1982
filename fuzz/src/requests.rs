//! Requests, from any bytes through the whole service to the bytes of an answer.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use weir::decision::Verdict;
use weir::descriptor::{Bounds, Request};
use weir::key::KeySeed;
use weir::limiter::{Backend, Limiter};
use weir::rules::{Options, RuleSet, SourceFile, compile};
use weir::server::{Decide, in_process};
use weir::settings::{AnswerSettings, LimitHeaders};
use weir::store::memory::MemoryStore;
use weir::time::{Clock, ManualClock, Micros};

/// Every kind of rule, under keys that are likely to be guessed.
const RULES: &str = include_str!("rules.yaml");

/// Few counters, so that eviction is exercised as well.
const COUNTERS: usize = 1000;

/// A service without a network.
pub struct Service {
    decider: Decider,
    bounds: Bounds,
}

struct Decider {
    rules: RuleSet,
    limiter: Limiter,
    clock: ManualClock,
}

impl Decide for Decider {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        self.limiter.check(&self.rules, request, self.clock.now()).await
    }
}

impl Default for Service {
    fn default() -> Service {
        let file = SourceFile { name: "rules.yaml".into(), text: RULES.to_owned() };
        let compiled = compile(&[file], &Options::default());
        let rules = compiled.unwrap_or_else(|problems| panic!("{problems:#?}")).0;
        let clock = ManualClock::at(Micros::from_secs(1_700_000_000));
        let config = AnswerSettings {
            headers: LimitHeaders::Both,
            decision_header: true,
            dynamic_metadata: true,
            ..AnswerSettings::default()
        };
        let backend = Backend::Memory(MemoryStore::new(COUNTERS));
        let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), config);
        Service { decider: Decider { rules, limiter, clock }, bounds: Bounds::default() }
    }
}

impl Service {
    /// Answers an encoded request (true) or refuses it (false); anything else is a panic.
    pub fn protobuf(&self, message: &[u8]) -> bool {
        answered(in_process::protobuf(&self.decider, &self.bounds, message))
    }

    /// Answers a request in JSON (true) or refuses it (false).
    pub fn json(&self, message: &[u8]) -> bool {
        answered(in_process::json(&self.decider, &self.bounds, message))
    }
}

/// Runs a call to its end. The memory store never waits, so one poll must do.
fn answered(call: impl Future<Output = Result<Vec<u8>, in_process::Refused>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(call).poll(&mut context) {
        Poll::Ready(Ok(_)) => true,
        Poll::Ready(Err(refused)) => {
            assert!(!refused.defect, "a panic was caught: {}", refused.reason);
            assert!(!refused.reason.is_empty(), "refused without a reason");
            false
        }
        Poll::Pending => panic!("a decision in memory waits for something"),
    }
}
