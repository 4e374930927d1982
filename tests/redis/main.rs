//! Tests that need a real Redis: exact counts from many instances, and a response during every
//! fault.
//!
//! Every test prints its figures (`--nocapture` shows them). Latencies are not asserted; bounds
//! that define a guarantee are, under `exclusive`.

mod agreement;
mod alerts;
mod batching;
mod changes;
mod compose;
mod connection;
mod counters;
mod demo;
mod envoy_gateway;
mod envoy_ratelimit;
mod exact;
mod faults_under_load;
mod fixtures;
mod flood;
mod functions;
mod guarantees;
mod hostile_replies;
mod hostile_requests;
mod large_limits;
mod leased;
mod metrics_format;
mod outage_log;
mod plans;
mod quota;
mod rlqs_envoy;
mod rlqs_first_share;
mod rlqs_shared;
mod round_trips;
mod secured;
mod slots;
mod soak;
mod synced;
mod traces;
mod transition_log;
mod try_request;
mod unavailable;
mod usage;
mod what_if;

#[allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#[path = "../support"]
mod support {
    pub(crate) mod ads;
    pub(crate) mod certificates;
    pub(crate) mod collector;
    pub(crate) mod envoy;
    pub(crate) mod envoy_gateway;
    pub(crate) mod http;
    pub(crate) mod load;
    pub(crate) mod metrics_page;
    pub(crate) mod on_redis;
    pub(crate) mod plans_page;
    pub(crate) mod process;
    pub(crate) mod quota_run;
    pub(crate) mod redis;
    pub(crate) mod resident;
    pub(crate) mod rlqs;
    pub(crate) mod rls;
    pub(crate) mod schedule;
    pub(crate) mod secret;
    pub(crate) mod traffic;
    pub(crate) mod vectors;
    pub(crate) mod wait;
    pub(crate) mod weir;
    pub(crate) mod window_edge;
    pub(crate) mod yaml;
}
