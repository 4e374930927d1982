//! Deciders, verdicts and an admin view for tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use crate::decision::{Cause, Code, CurrentLimit, Status, Verdict};
use crate::descriptor::{Request, Typed};
use crate::limit::Unit;
use crate::time::Micros;

use super::{AdminView, Decide, NotShown};

/// A verdict with every field filled.
pub(super) fn full_verdict() -> Verdict {
    let over = Status {
        code: Code::OverLimit,
        limit: Some(CurrentLimit {
            name: Some("product".into()),
            requests: 10,
            unit: Some(Unit::Week),
        }),
        remaining: 3,
        reset_after: Some(Micros(60_000_000)),
        cause: Cause::NoRule,
    };
    let serde_json::Value::Object(metadata) = serde_json::json!({"domain": "shop", "n": 2}) else {
        unreachable!("an object");
    };
    Verdict {
        code: Code::OverLimit,
        statuses: vec![over, no_limit()],
        headers: vec![("retry-after".into(), "60".into())],
        metadata: Some(metadata),
        shadowed: false,
        grant: None,
    }
}

fn no_limit() -> Status {
    Status { code: Code::Ok, limit: None, remaining: 0, reset_after: None, cause: Cause::NoRule }
}

fn verdict(request: &Request<'_>, code: Code) -> Verdict {
    Verdict {
        code,
        statuses: request.descriptors.iter().map(|_| no_limit()).collect(),
        headers: Vec::new(),
        metadata: None,
        shadowed: false,
        grant: None,
    }
}

/// Says what the domain says: `ok`, `over`, `full` (every field) or `panic`.
pub(super) struct Obedient;

impl Decide for Obedient {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        match request.domain {
            "over" => verdict(request, Code::OverLimit),
            "full" => full_verdict(),
            "panic" => panic!("a test asked for it"),
            _ => verdict(request, Code::Ok),
        }
    }
}

/// Tells when a call has arrived, and answers it when it is let go.
pub(super) struct Gate {
    pub(super) arrived: mpsc::UnboundedSender<()>,
    pub(super) go: Arc<Semaphore>,
}

impl Decide for Gate {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        let _ = self.arrived.send(());
        let _pass = self.go.acquire().await;
        verdict(request, Code::Ok)
    }
}

/// Lists the threads that it was asked on.
#[derive(Default)]
pub(super) struct Whereabouts {
    pub(super) threads: Arc<Mutex<Vec<String>>>,
}

impl Decide for Whereabouts {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.threads.lock().unwrap().push(name);
        verdict(request, Code::Ok)
    }
}

/// Lists how long its callers wait.
#[derive(Default)]
pub(super) struct Patient {
    pub(super) waits: Arc<Mutex<Vec<Option<Duration>>>>,
}

impl Decide for Patient {
    async fn decide(&self, request: &Request<'_>) -> Verdict {
        self.waits.lock().unwrap().push(request.timeout);
        verdict(request, Code::Ok)
    }
}

/// Shows a word per endpoint.
pub(super) struct View;

impl AdminView for View {
    fn metrics(&self) -> String {
        "weir_up 1\n".into()
    }

    fn rules(&self) -> serde_json::Value {
        serde_json::json!({"files": []})
    }

    fn rlconfig(&self) -> String {
        "shop.k: unit=SECOND\n".into()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!({"grpc": {}})
    }

    fn explain(&self, domain: &str, descriptor: &Typed) -> serde_json::Value {
        serde_json::json!([domain, descriptor.0])
    }

    async fn counter(&self, _: &str, _: &Typed) -> Result<serde_json::Value, NotShown> {
        Err(NotShown::NoCounter("none".into()))
    }

    async fn forget(&self, _: &str, _: &Typed) -> Result<serde_json::Value, NotShown> {
        Err(NotShown::Store("down".into()))
    }

    fn top(&self) -> serde_json::Value {
        serde_json::json!({"top": []})
    }
}
