//! The fixture of the lease tests: clients, Envoy, a recorder, weir, and an upstream that holds
//! requests.

use std::time::Duration;

use super::forms::Form;
use crate::support::envoy::recorder::{Call, Recorder};
use crate::support::envoy::slow_upstream::SlowUpstream;
use crate::support::envoy::{Envoy, tuned};
use crate::support::http::stream::Stream;
use crate::support::rls::{Client, DescriptorStatus, costing, descriptor, request};
use crate::support::weir::Weir;

use envoy_types::pb::google::protobuf::value::Kind;

/// Slots in the rules of the example.
pub(crate) const MAX: usize = 10;

/// The running processes of a test.
pub(crate) struct Fixture {
    pub(crate) weir: Weir,
    pub(crate) recorder: Recorder,
    pub(crate) upstream: SlowUpstream,
    envoy: Option<Envoy>,
    client: Client,
}

impl Fixture {
    /// Starts the example of `form` in front of a weir with `rules`.
    pub(crate) fn start(form: &Form<'_>, rules: &str) -> Fixture {
        let weir = Weir::start(rules);
        let recorder = Recorder::before(weir.grpc);
        let upstream = SlowUpstream::start();
        let config = tuned(form.example, recorder.address, upstream.address);
        let envoy = Some(Envoy::start(form.version, &with_long_timeouts(&config)));
        Fixture { client: weir.client(), weir, recorder, upstream, envoy }
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) fn open(&self) -> Stream {
        Stream::open(self.envoy().ingress, "/", &[("x-api-key", "k1")])
    }

    pub(crate) fn envoy(&self) -> &Envoy {
        self.envoy.as_ref().expect("it has not been killed")
    }

    /// Kills Envoy (SIGKILL).
    pub(crate) fn without_envoy(mut self) -> Fixture {
        drop(self.envoy.take());
        self
    }

    /// The status of the slots, by a peek.
    pub(crate) fn look(&self) -> DescriptorStatus {
        self.look_at("concurrency", &[("service", "reports"), ("api_key", "k1")])
    }

    /// The status of a counter, by a peek.
    pub(crate) fn look_at(&self, domain: &str, entries: &[(&str, &str)]) -> DescriptorStatus {
        let look = request(domain, vec![costing(0, descriptor(entries))]);
        self.client.check(look).statuses.remove(0)
    }

    /// Free slots.
    pub(crate) fn free(&self) -> usize {
        self.look().limit_remaining as usize
    }

    /// A pause between two peeks that poll for a condition. The connection goes on in the meantime.
    pub(crate) fn pause(&self) {
        self.client.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    }
}

/// The configuration with timeouts that a busy machine does not exceed.
fn with_long_timeouts(config: &str) -> String {
    let changed = config.replace("timeout: 0.1s", "timeout: 60s").replace(": 25s", ": 3600s");
    assert!(!changed.contains("timeout: 0.1s"));
    changed
}

/// The id of a lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease(pub(crate) String);

impl Lease {
    /// The lease that a response grants.
    pub(crate) fn granted(call: &Call) -> Option<Lease> {
        let metadata = call.response.dynamic_metadata.as_ref()?;
        let Kind::StructValue(lease) = metadata.fields.get("lease")?.kind.as_ref()? else {
            return None;
        };
        match lease.fields.get("id")?.kind.as_ref()? {
            Kind::StringValue(id) => Some(Lease(id.clone())),
            _ => None,
        }
    }

    /// The lease that a request ends.
    pub(crate) fn released(call: &Call) -> Option<Lease> {
        let mut entries = call.request.descriptors.iter().flat_map(|one| &one.entries);
        entries.find(|entry| entry.key == "lease").map(|entry| Lease(entry.value.clone()))
    }
}

/// Whether the request has negative hits.
pub(crate) fn is_negative(call: &Call) -> bool {
    call.request.descriptors.iter().any(|one| one.is_negative_hits)
}
