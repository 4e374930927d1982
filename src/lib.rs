//! weir: a rate-limit decision service that speaks Envoy's protocol and always answers.
//!
//! A request passes through the modules in one direction:
//!
//! 1. [`server`] decodes bytes into a borrowed [`Request`](descriptor::Request).
//! 2. [`app`] reads the clock once and takes one snapshot of the [`rules`].
//! 3. [`limiter`] finds the rule and the [`Key`](key::Key) of every descriptor.
//! 4. [`algorithm`] plans a [`Step`](step::Step), a [`store`] applies it to the counter, and
//!    [`algorithm`] reports the outcome as a [`Decision`](decision::Decision).
//! 5. [`limiter`] folds the decisions into one [`Verdict`](decision::Verdict).
//! 6. [`telemetry`] counts the verdict, and [`server`] encodes it.
//!
//! # Map
//!
//! - [`secret_file`]: files that are read whole: certificates, secrets.
//! - [`yaml`]: nodes with positions, of rule files and settings files.
//! - [`spelling`], [`duration`]: the name that a misspelt one means; lengths of time.
//! - [`time`]: instants in microseconds, and the one trait that reads a clock.
//! - [`sharded`], [`histogram`]: metrics as atomics, one copy per core.
//! - [`tls`]: certificate files: read, reloaded, matched by name; for the server and the Redis client.
//! - [`descriptor`]: requests and their descriptors, borrowed and bounded.
//! - [`limit`]: limits: algorithm, tiers, units, and their bounds.
//! - [`step`]: the state machines that counters are; integers only, so that Lua can be their twin.
//! - [`algorithm`]: from a limit to a step, from an outcome to a decision; all division.
//! - [`decision`]: decisions, statuses, verdicts, and grants.
//! - [`key`]: counter keys, a keyed hash of 128 bits.
//! - [`store_error`]: why a store returned no outcome.
//! - [`rules`]: rule files, compiled into a tree with indexed patterns; lookups; `explain`.
//! - [`store`]: the counters, in [`store::redis`] or in [`store::memory`], which is sharded and bounded.
//! - [`modes`]: how often a decision calls Redis: exact, leased, synced.
//! - [`limiter`]: the order of a decision; leases, shadow and quota mode, headers, metadata.
//! - [`telemetry`]: what was decided, as atomics and as Prometheus text.
//! - [`proto`]: the generated messages, for the server and `weir call` only.
//! - [`server`]: gRPC on a runtime per core, HTTP, admin, health, drain.
//! - [`settings`]: every knob, from file, environment and flags.
//! - [`app`]: builds all of it, runs it, stops it. [`cli`] is the command line.
//!
//! # Invariants
//!
//! **Invariant:** `step`, `algorithm`, `decision`, `rules` (but for reading files) and the folding
//! half of `limiter` are pure: no clock, no I/O, no logging, nothing to await.
//!
//! **Invariant:** a request is decided for one instant, an argument of [`limiter::Limiter::check`].
//!
//! **Invariant:** a store never sees a descriptor, a rule or a limit; a rule never sees a store.
//!
//! **Invariant:** metrics are recorded once per request, from its verdict, by the limiter's caller.
//!
//! **Invariant:** nothing a client or a file says can panic, hang or grow the process.
//!
//! `tests/tidy.rs` holds the tree to the arrows between these modules.

pub mod algorithm;
pub mod app;
pub mod cli;
pub mod decision;
pub mod descriptor;
pub mod duration;
pub mod histogram;
pub mod key;
pub mod limit;
pub mod limiter;
pub mod modes;
pub mod proto;
pub mod rules;
pub mod secret_file;
pub mod server;
pub mod settings;
pub mod sharded;
pub mod spelling;
pub mod step;
pub mod store;
pub mod store_error;
pub mod telemetry;
pub mod time;
pub mod tls;
pub mod yaml;
