//! The table of the permitted dependencies between modules of `src/`.

/// The permitted dependencies: a module of `src/`, and the modules of rows above that it may name.
/// Test code may name any module.
pub(crate) const ALLOWED_DEPENDENCIES: &[(&str, &str)] = &[
    ("bounded_file", ""),
    ("escape", ""),
    ("time", ""),
    ("atomic_count", ""),
    ("client_address", ""),
    ("sharded", ""),
    ("splitmix64", ""),
    ("sampling", "splitmix64"),
    ("histogram", "time sharded"),
    ("outage_log", "time"),
    ("line_rate", "time"),
    ("backoff", ""),
    ("connect", ""),
    ("thread_priority", ""),
    ("tls", "bounded_file"),
    ("yaml", ""),
    ("spelling", ""),
    ("duration", "time"),
    ("limit", "time spelling"),
    ("quota", "time limit"),
    ("descriptor", "escape limit"),
    ("key", "time limit descriptor"),
    ("step", "time limit"),
    ("store_error", ""),
    ("proto", ""),
    ("rules", "escape time yaml spelling duration limit descriptor key proto"),
    ("plans", "escape sharded yaml spelling limit descriptor key rules"),
    // The settings file may hold secrets, and has the same bound as other files with secrets. Names of
    // certificates are parsed once.
    ("settings", "bounded_file escape tls yaml spelling duration limit descriptor rules"),
    (
        "store",
        "bounded_file splitmix64 outage_log tls time histogram quota key step store_error settings",
    ),
    (
        "changes",
        "escape time atomic_count outage_log duration limit descriptor key store_error rules store",
    ),
    ("lease_rollback", ""),
    ("decision", "time limit descriptor store_error lease_rollback"),
    ("decision_record", "time limit descriptor key decision rules"),
    (
        "decision_recorder",
        "time atomic_count sampling outage_log line_rate descriptor key rules settings decision \
         decision_record",
    ),
    ("algorithm", "time limit step decision"),
    (
        "rlqs",
        "escape time atomic_count client_address limit descriptor key store_error proto rules \
         quota store decision",
    ),
    ("modes", "time limit key step store decision algorithm"),
    ("usage", "time atomic_count limit descriptor key store decision rules"),
    (
        "limiter",
        "time limit descriptor key step store changes lease_rollback decision algorithm rules \
         plans settings modes usage",
    ),
    (
        "replay",
        "escape time limit descriptor key store decision decision_record rules plans settings \
         limiter",
    ),
    ("capacity", "time limit store algorithm rules settings modes"),
    (
        "plan_sources",
        "bounded_file escape outage_log backoff connect tls time plans settings store",
    ),
    ("telemetry", "time sharded histogram limit descriptor key store decision rules settings"),
    (
        "request_log",
        "escape time atomic_count sampling line_rate duration limit descriptor key \
         decision decision_record rules settings limiter telemetry",
    ),
    (
        "server",
        "bounded_file atomic_count client_address tls time limit descriptor lease_rollback \
         decision settings telemetry proto usage",
    ),
    (
        "xds",
        "bounded_file escape outage_log backoff connect thread_priority tls time rules settings \
         proto",
    ),
    (
        "app",
        "bounded_file escape time client_address thread_priority limit descriptor key store \
         changes decision decision_recorder rules plans modes limiter rlqs plan_sources telemetry \
         request_log server settings usage xds",
    ),
    (
        "cli",
        "bounded_file escape time duration limit descriptor key step store decision algorithm \
         rules plans modes rlqs limiter replay capacity telemetry proto server settings usage app",
    ),
    ("main", "cli"),
];
