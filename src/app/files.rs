//! Checks the files that settings name, rules excepted: certificates, private keys, passwords, plans,
//! and that of the decision log.

use std::fmt::Display;
use std::sync::Arc;

use super::plans;
use crate::decision_recorder;
use crate::escape::one_line;
use crate::server::{TlsAcceptor, TlsConfig};
use crate::settings::{Settings, StoreKind};
use crate::store::RedisStore;
use crate::telemetry;
use crate::time::SystemClock;
use crate::xds;

/// Loads the files as a start does, and drops them. Opens no port and no connection, and starts no
/// thread. Also loads the system's authorities where a start does. Returns the problems, one line each.
pub fn check_files(settings: &Settings) -> Vec<String> {
    let grpc = TlsConfig::from_settings(&settings.grpc);
    let grpc = grpc.map(|config| TlsAcceptor::load(config, 0, Arc::default()).map(drop));
    let redis =
        (settings.store.kind == StoreKind::Redis).then(|| RedisStore::check_files(&settings.redis));
    let collectors = telemetry::check_collectors(&settings.tracing, &settings.metrics);
    let problems = [
        grpc.and_then(problem),
        redis.and_then(problem),
        problem(xds::check_files(&settings.xds, SystemClock::new())),
        problem(collectors),
        problem(decision_recorder::check_file(&settings.decisions)),
    ];
    problems.into_iter().flatten().chain(plans::check(&settings.plans)).collect()
}

/// The text of an error, on one line.
fn problem<E: Display>(checked: Result<(), E>) -> Option<String> {
    checked.err().map(|error| one_line(&error.to_string()).into_owned())
}
