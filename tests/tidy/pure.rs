//! The list of modules without side effects.

/// Modules without side effects: no clock, no waiting, no logging.
pub(crate) const PURE_MODULES: &[&str] = &[
    "src/escape",
    "src/limit",
    "src/descriptor",
    "src/key",
    "src/step",
    "src/algorithm",
    "src/decision",
    "src/rules/compile",
    "src/rules/lookup",
    "src/store/guarded/breaker",
    "src/store/guarded/breaker_log",
    "src/store/redis/command",
    "src/store/redis/outage_log",
    "src/store/redis/reply",
    "src/store/redis/script",
    "src/limiter/fold",
    "src/limiter/headers",
    "src/modes/leased/policy",
    "src/modes/leased/demand",
    "src/modes/leased/token_pool",
    "src/modes/synced/delta",
    "src/modes/synced/replica",
    "src/modes/over_limit_cache/denied_state",
];
