//! weir on a real Redis: exact counts from many instances, and an answer whatever befalls Redis.
//!
//! Every test prints its figures (`--nocapture` shows them). Lengths of time are printed and not
//! judged: the machine that runs the tests may be busy with anything.

#[path = "../bed/redis.rs"]
mod bed;
mod company;
mod counters;
mod crowd;
mod day;
mod down;
mod envoy_ratelimit;
mod exact;
mod faults;
mod flood;
mod inputs;
mod journal;
mod leased;
#[path = "../../src/layers/leased/tests/oracle.rs"]
mod oracle;
mod page;
mod promtool;
mod reach;
mod secured;
mod start;
mod support;
mod synced;
mod traces;
mod traffic;
mod trips;
mod watching;

use weir::{limit, time};
