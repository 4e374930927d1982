//! The load: calls of many tenants to several instances, each sent when it is due.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Builder;
use tonic::transport::{Channel, Endpoint};

use crate::support::rls::{Code, RateLimitServiceClient, descriptor, headers, request};

/// The calls and their times.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tenants: usize,
    /// Calls per second in total.
    pub(crate) rate: u32,
    /// The length and the number of the rule's windows.
    pub(crate) window: Duration,
    pub(crate) windows: u32,
}

/// No call is sent this close to the edge of a window, so that every response belongs to one
/// window.
pub(crate) const EDGE: Duration = Duration::from_millis(150);

/// The result of one call.
pub(crate) struct Call {
    pub(crate) tenant: usize,
    pub(crate) window: u32,
    pub(crate) passed: bool,
    pub(crate) fallback: bool,
    pub(crate) took: Duration,
}

impl Load {
    /// Waits for the start of a window, sends everything, and returns every call. `run` is part of
    /// the tenants' names, so that every run has its own counters.
    pub(crate) fn send(self, run: &str, instances: &[SocketAddr]) -> Vec<Call> {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut channels = Vec::new();
            for instance in instances {
                let endpoint = Endpoint::from_shared(format!("http://{instance}"));
                channels.push(endpoint.expect("an address").connect().await.expect("it listens"));
            }
            let names: Vec<Arc<str>> =
                (0..self.tenants).map(|tenant| format!("{run}-{tenant}").into()).collect();
            let begin = self.next_edge();
            let mut tasks = Vec::new();
            for number in 0..self.calls_per_window() * self.windows {
                let window = number / self.calls_per_window();
                tokio::time::sleep_until((begin + self.due(number)).into()).await;
                // Each instance gets whole rounds of tenants, so that all of them see all tenants.
                let tenant = number as usize % self.tenants;
                let instance = number as usize / self.tenants % channels.len();
                let (channel, name) = (channels[instance].clone(), names[tenant].clone());
                tasks.push(tokio::spawn(call(channel, name, tenant, window)));
            }
            let mut calls = Vec::with_capacity(tasks.len());
            for task in tasks {
                calls.push(task.await.expect("no call panicked"));
            }
            calls
        })
    }

    /// Calls per tenant and window.
    pub(crate) fn offered(self) -> u32 {
        self.calls_per_window() / self.tenants as u32
    }

    fn calls_per_window(self) -> u32 {
        ((self.window - 2 * EDGE).as_secs_f64() * f64::from(self.rate)) as u32
    }

    /// The time of call `number`, from the edge on.
    fn due(self, number: u32) -> Duration {
        let (window, within) = (number / self.calls_per_window(), number % self.calls_per_window());
        self.window * window + EDGE + Duration::from_secs(1) * within / self.rate
    }

    fn next_edge(self) -> Instant {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let into = now.as_micros() % self.window.as_micros();
        Instant::now() + self.window - Duration::from_micros(into as u64)
    }
}

async fn call(channel: Channel, name: Arc<str>, tenant: usize, window: u32) -> Call {
    let mut client = RateLimitServiceClient::new(channel);
    let asked = request("tenants", vec![descriptor(&[("tenant", &name)])]);
    let began = Instant::now();
    let answer = client.should_rate_limit(asked).await.expect("never an RPC error");
    let took = began.elapsed();
    let answer = answer.into_inner();
    let passed = answer.overall_code == i32::from(Code::Ok);
    let fallback = headers(&answer).iter().any(|(_, value)| value.contains("cause="));
    Call { tenant, window, passed, fallback, took }
}
