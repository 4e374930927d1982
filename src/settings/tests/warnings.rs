//! Tests of the warnings about variables and settings without effect.

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
         docs/operate/redis.md)",
        "WEIR_GRPC_LISTEN is ignored; did you mean WEIR__GRPC__LISTEN?",
    ];
    assert_eq!(warnings, expected);
    let always = envoy_ratelimit_env::ALWAYS_ON.map(|name| (name, "true"));
    assert!(run(NO_FILE, &always, Flags::default()).expect("valid").warnings.is_empty());
}

/// An address of Redis without `store.kind` would otherwise be ignored, and each instance would allow
/// the whole limit.
#[test]
fn redis_url_selects_redis_unless_memory_is_set() {
    let url = "redis://u:hunter2@h:1";
    let flags = Flags { redis_url: Some(url.to_owned()), ..Flags::default() };
    let file = format!("redis: {{ url: '{url}' }}");
    for loaded in [
        run(&file, &[], Flags::default()),
        run(NO_FILE, &[("WEIR__REDIS__URL", url)], Flags::default()),
        run(NO_FILE, &[], flags.clone()),
    ] {
        let loaded = loaded.expect("valid");
        assert_eq!(loaded.settings.store.kind, StoreKind::Redis);
        assert_eq!(loaded.warnings, [""; 0]);
    }
    assert_eq!(Settings::default().store.kind, StoreKind::Memory);
    let loaded = run("store: { kind: memory }", &[], flags).expect("valid");
    assert_eq!(loaded.settings.store.kind, StoreKind::Memory);
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    assert!(warning.starts_with("redis.url (--redis-url) has no effect"), "{warning}");
    assert!(warning.contains("weir.yaml:1:16)"), "{warning}");
}
