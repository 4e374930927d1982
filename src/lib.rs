//! weir: a rate-limit decision service for Envoy. It keeps deciding while Redis fails.
//!
//! A request passes through the modules in this order:
//!
//! 1. [`server`] decodes bytes into a borrowed [`Request`](descriptor::Request).
//! 2. [`app`] reads the clock once and takes one snapshot of the [`rules`].
//! 3. [`limiter`] finds the rule and the [`CounterKey`](key::CounterKey) of every descriptor.
//! 4. [`algorithm`] plans a [`Step`](step::Step), a [`store`] applies it to the counter, and
//!    [`algorithm`] reports the outcome as a [`Decision`](decision::Decision).
//! 5. [`limiter`] folds the decisions into one [`Verdict`](decision::Verdict).
//! 6. [`telemetry`] counts the verdict, and [`server`] encodes it.
//!
//! # Map
//!
//! Foundations:
//!
//! - [`bounded_file`]: bounded reads of certificate files, secret files and the settings file.
//! - [`escape`]: texts of files and requests on one line, for messages.
//! - [`yaml`]: YAML nodes with line and column, for rule files and settings files.
//! - [`spelling`]: suggestions for misspelt names.
//! - [`splitmix64`]: random numbers that are the same for the same seed.
//! - `sampling`: chooses a share of requests at random.
//! - [`duration`]: durations in text form, such as `1h30m`.
//! - [`time`]: instants in microseconds, and the only trait that reads a clock.
//! - [`atomic_count`]: a count that threads share.
//! - [`client_address`]: the address of a client, as the limits per address count it.
//! - [`sharded`], [`histogram`]: metrics as atomics, in one shard per core and at most 8 shards.
//! - `outage_log`: bounds the log lines about a connection that fails and recovers.
//! - `line_rate`: bounds the lines that a log gets per second.
//! - `thread_priority`: lowers the priority of threads with long work.
//! - `connect`, `backoff`: the addresses of a server in their order, and the pauses between attempts.
//! - [`tls`]: certificate files, their reload and name checks, for the server and the clients of Redis
//!   and xDS.
//!
//! The path of a request:
//!
//! - [`descriptor`]: requests and their descriptors, borrowed and bounded.
//! - [`limit`]: limits: algorithm, tiers, units, costs, and their bounds.
//! - [`key`]: counter keys, a keyed hash of 128 bits.
//! - [`quota`]: the limit of a counter, divided among Envoys and instances.
//! - [`rules`]: rule files, compiled into a tree with indexed patterns; lookups; `explain`.
//! - [`plans`]: named numbers for limits, and the customers who have them.
//! - [`step`]: the state machines of counters. They use integers only, because each also exists
//!   in Lua.
//! - [`algorithm`]: turns a limit into a step and an outcome into a decision. Decisions in a
//!   step use no division.
//! - [`decision`]: decisions, statuses, and verdicts.
//! - [`decision_record`]: the record of a request in the decision log.
//! - [`lease_rollback`]: gives back what a request took under a lease, unless the response is
//!   delivered.
//! - [`store`]: the counters, in [`store::redis`] or in the bounded [`store::memory`].
//! - [`store_error`]: the reasons why a store returned no outcome.
//! - [`changes`]: temporary changes of rules and descriptors, which all instances share.
//! - [`modes`]: how often a decision calls Redis: exact, leased, synced.
//! - [`rlqs`]: divides limits among Envoys that decide by themselves.
//! - [`usage`]: the names of counters, so that the hits of each client can be listed.
//! - [`limiter`]: the order of a decision; leases, shadow and quota mode, headers, metadata.
//!
//! The process around it:
//!
//! - [`telemetry`]: metrics for Prometheus and OTLP, traces, and the log of fallbacks.
//! - [`proto`]: the generated messages, for the server, `weir call`, `weir health`, rules by xDS and
//!   the xDS client only.
//! - [`decision_recorder`]: writes the decision log.
//! - [`request_log`]: lines about decided requests in the log of the process.
//! - [`server`]: gRPC on one runtime per worker, HTTP, admin, health, drain.
//! - [`xds`]: the client of a server that sends the rules.
//! - [`plan_sources`]: plans in Redis, and plans of an HTTP server.
//! - [`settings`]: every setting, from the file, the environment and flags.
//! - [`app`]: builds these parts, runs them, and stops them in order.
//! - [`capacity`]: how much Redis and how many instances rules need, by calculation.
//! - [`replay`]: decides recorded calls by two rule sets on virtual time, and compares the verdicts.
//! - [`cli`]: the command line.
//!
//! # Invariants
//!
//! **Invariant:** `limit`, `quota`, `descriptor`, `key`, `step`, `algorithm`, `decision`,
//! `decision_record`, and the compiler and lookups of `rules` are pure: they read no clock, do no I/O,
//! log nothing and await nothing. The one exception is [`KeySeed::random`](key::KeySeed::random),
//! which reads the random numbers of the operating system. `PURE_MODULES` in `tests/tidy/pure.rs`
//! lists the modules.
//!
//! **Invariant:** a request is decided as of one instant, which is an argument of
//! [`limiter::Limiter::check`].
//!
//! **Invariant:** a store has no access to descriptors, rules or limits, and a rule has none to
//! stores.
//!
//! **Invariant:** the limiter's caller records the metrics of a request once, from its verdict.
//!
//! **Invariant:** no input of a client and no file can panic the process, block it forever, or
//! let its memory grow without bound.
//!
//! `ALLOWED_DEPENDENCIES` in `tests/tidy/dependencies.rs` lists which module may use which. Tidy
//! checks it.

pub mod algorithm;
pub mod app;
pub mod atomic_count;
mod backoff;
pub mod bounded_file;
pub mod capacity;
pub mod changes;
pub mod cli;
pub mod client_address;
mod connect;
pub mod decision;
pub mod decision_record;
pub mod decision_recorder;
pub mod descriptor;
pub mod duration;
pub mod escape;
pub mod histogram;
pub mod key;
pub mod lease_rollback;
pub mod limit;
pub mod limiter;
mod line_rate;
pub mod modes;
mod outage_log;
pub mod plan_sources;
pub mod plans;
pub mod proto;
pub mod quota;
pub mod replay;
pub mod request_log;
pub mod rlqs;
pub mod rules;
mod sampling;
pub mod server;
pub mod settings;
pub mod sharded;
pub mod spelling;
pub mod splitmix64;
pub mod step;
pub mod store;
pub mod store_error;
pub mod telemetry;
#[cfg(test)]
mod testing;
mod thread_priority;
pub mod time;
pub mod tls;
pub mod usage;
pub mod xds;
pub mod yaml;
