//! weir: a rate-limit decision service that speaks Envoy's protocol and always answers.
//!
//! One request's way, in one direction: [`server`] decodes bytes into a borrowed
//! [`Request`](descriptor::Request); [`app`] reads the clock once and takes one snapshot of the
//! [`rules`]; [`limiter`] for every descriptor that meets a rule has [`algorithm`] plan a
//! [`Step`](step::Step), a [`store`] apply it to the counter behind its [`Key`](key::Key), and
//! [`algorithm`] report the outcome as a [`Decision`](decision::Decision); the decisions fold into
//! one [`Verdict`](decision::Verdict), which [`telemetry`] counts and [`server`] encodes.
//!
//! # Map
//!
//! - [`secret_file`]: files that are read whole: certificates, secrets.
//! - [`yaml`]: nodes with positions, of rule files and settings files.
//! - [`spelling`], [`duration`]: the name that a misspelt one means; lengths of time.
//! - [`time`]: microseconds, and the one trait that reads a clock.
//! - [`sharded`], [`histogram`]: metrics as atomics, one copy per core.
//! - [`tls`]: certificate files: read, reloaded, matched by name; for the server and the Redis client.
//! - [`descriptor`]: what a proxy asks, borrowed and bounded.
//! - [`limit`]: the numbers of a limit: algorithm, tiers, units, and what they may be.
//! - [`step`]: the state machines that counters are; integers only, so that Lua can be their twin.
//! - [`algorithm`]: from a limit to a step, from an outcome to a decision; all division.
//! - [`decision`]: decisions, statuses, verdicts, and what must be given back.
//! - [`key`]: which counter, as 128 keyed bits.
//! - [`store_error`]: why a store gave no outcome.
//! - [`rules`]: rule files, compiled into a tree with indexed patterns; lookups; `explain`.
//! - [`store`]: where counters live. [`store::memory`] is sharded, bounded and compact.
//! - [`modes`]: how often a decision visits the store: exact, leased, synced.
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
