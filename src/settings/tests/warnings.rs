//! Tests of the warnings about variables without effect.

use super::*;

#[test]
fn variables_without_effect_are_listed_in_one_warning() {
    let env = [
        ("PATH", "/bin"),
        ("USE_STATSD", "false"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("TRACING_ENABLED", "true"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("WEIR_PORT", "tcp://10.0.0.7:8081"),
        ("WEIR_GRPC_LISTEN", ":1"),
    ];
    let warnings = run(NO_FILE, &env, Flags::default()).expect("valid").warnings;
    let expected = [
        "these variables have no effect: REDIS_SOCKET_TYPE (weir uses its own Redis client; see \
         docs/redis.md)",
        "WEIR_GRPC_LISTEN is ignored; did you mean WEIR__GRPC__LISTEN?",
    ];
    assert_eq!(warnings, expected);
    let always = envoy_ratelimit_env::ALWAYS_ON.map(|name| (name, "true"));
    assert!(run(NO_FILE, &always, Flags::default()).expect("valid").warnings.is_empty());
    let redis = |file| run(file, &[("BACKEND_TYPE", "redis")], Flags::default());
    let first = |loaded: Result<Loaded, Vec<String>>| loaded.expect("valid").warnings.remove(0);
    assert!(first(redis(NO_FILE)).contains("counts in memory"));
    assert!(redis("store: { kind: memory }").expect("valid").warnings.is_empty());
    let memcache = run(NO_FILE, &[("BACKEND_TYPE", "memcache")], Flags::default());
    assert!(first(memcache).contains("only redis"));
}
