//! Sends any bytes as a request through the whole service.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir::decision::{Code, DecisionReason, Status, Verdict};
use weir::descriptor::{Descriptor, Request, RequestBounds};
use weir::key::KeySeed;
use weir::limiter::{Backend, Limiter};
use weir::rules::{Options, RuleSet, SourceFile, compile};
use weir::server::grpc_fuzz_harness::GrpcService;
use weir::server::{Decide, fuzz_harness};
use weir::settings::{LimitHeaders, ResponseSettings};
use weir::store::memory::MemoryStore;
use weir::time::{Clock, ManualClock, Micros};

/// Every kind of rule, under keys that are likely to be guessed.
const RULES: &str = include_str!("rules.yaml");

/// Few counters, so that eviction is exercised as well.
const COUNTERS: usize = 1000;

/// A service without a network.
pub struct Service {
    decider: Decider,
    bounds: RequestBounds,
    direct: GrpcService<Echo>,
    tonic: GrpcService<Echo>,
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

/// A decider without counters. Its verdict shows the request, so that equal requests have equal
/// responses.
struct Echo;

impl Decide for Echo {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        let Request { domain, descriptors, hits_addend, .. } = request;
        let status = |descriptor: &Descriptor<'_>| Status {
            code: Code::Ok,
            limit: None,
            remaining: descriptor.hits(*hits_addend).unsigned_abs(),
            reset_after: None,
            reason: DecisionReason::NoRule,
        };
        Verdict {
            code: Code::OverLimit,
            statuses: descriptors.iter().map(status).collect(),
            headers: vec![("request".into(), format!("{domain:?} {hits_addend} {descriptors:?}"))],
            metadata: None,
            shadowed: false,
            rollback: None,
            what_if: Default::default(),
        }
    }
}

impl Default for Service {
    fn default() -> Service {
        let file = SourceFile { name: "rules.yaml".into(), text: RULES.to_owned() };
        let compiled = compile(&[file], &Options::default());
        let rules = compiled.unwrap_or_else(|problems| panic!("{problems:#?}")).0;
        let clock = ManualClock::at(Micros::from_secs(1_700_000_000));
        let config = ResponseSettings {
            headers: LimitHeaders::Both,
            decision_header: true,
            dynamic_metadata: true,
            ..ResponseSettings::default()
        };
        let backend = Backend::Memory(MemoryStore::new(COUNTERS));
        let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), config);
        let decider = Decider { rules, limiter, clock };
        let bounds = RequestBounds::default();
        let [direct, tonic] =
            [true, false].map(|fast_path| GrpcService::new(Arc::new(Echo), bounds, fast_path));
        Service { decider, bounds, direct, tonic }
    }
}

impl Service {
    /// Serves an encoded request. Returns whether it was answered (true) or rejected (false);
    /// anything else is a panic.
    pub fn protobuf(&self, message: &[u8]) -> bool {
        answered(fuzz_harness::protobuf(&self.decider, &self.bounds, message))
    }

    /// Serves `bytes` on both gRPC paths, as a message and as a whole body, and compares status, status
    /// message and response. A decider without counters decides, because each call would change them.
    /// Returns whether the message is answered.
    pub fn both_paths(&self, bytes: &[u8]) -> bool {
        let length = u32::try_from(bytes.len()).expect("inputs are short").to_be_bytes();
        let bodies = [[&[0], &length[..], bytes].concat(), bytes.to_vec()];
        let [status, _] = bodies.map(|body| {
            let [direct, tonic] = [&self.direct, &self.tonic]
                .map(|service| finished(service.call(Default::default(), body.clone())));
            assert_eq!(direct, tonic, "the paths differ");
            direct.status
        });
        status == 0
    }

    /// Serves a request in JSON. Returns whether it was answered (true) or rejected (false).
    pub fn json(&self, message: &[u8]) -> bool {
        answered(fuzz_harness::json(&self.decider, &self.bounds, message))
    }
}

/// Whether a call is answered. A refusal must have a reason, and must not be a panic.
fn answered(call: impl Future<Output = Result<Vec<u8>, fuzz_harness::Refused>>) -> bool {
    let Err(refused) = finished(call) else { return true };
    assert!(!refused.defect, "a panic was caught: {}", refused.reason);
    assert!(!refused.reason.is_empty(), "refused without a reason");
    false
}

/// The output of `call`. No decider does I/O, so one poll must do.
fn finished<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a decision in memory waits for something"),
    }
}
