//! Tests of the environment under weir's name, and under that of envoyproxy/ratelimit's binary.

use super::*;

/// The image reads rules from its own folder, unless a variable names another one.
#[test]
fn envoy_ratelimit_image_has_its_own_rules_folder() {
    let paths = |env: &[(&str, &str)]| {
        let loaded = load(&Flags::default(), &with_default_runtime_root(pairs(env)));
        loaded.map(|loaded| loaded.settings.rules.paths).unwrap_or_else(|errors| panic!("{errors}"))
    };
    for (env, path) in [
        (&[][..], "/srv/runtime_data/current/config"),
        (
            &[("RUNTIME_ROOT", "/data"), ("RUNTIME_SUBDIRECTORY", "ratelimit")],
            "/data/ratelimit/config",
        ),
        (&[("RUNTIME_SUBDIRECTORY", "x")], "/srv/runtime_data/current/x/config"),
        (&[("WEIR__RULES__PATHS", "/rules")], "/rules"),
    ] {
        assert_eq!(paths(env), [std::path::PathBuf::from(path)], "{env:?}");
    }
}

/// Shells and CI systems export the name of the machine as `HOST`.
#[test]
fn host_is_not_read_under_the_own_name() {
    let (env, warning) = without_host(pairs(&[("HOST", "my-laptop.local"), ("PORT", "9")]));
    assert_eq!((env, warning), (pairs(&[("PORT", "9")]), None));
    for address in ["127.0.0.1", "[::1]", "localhost"] {
        let (env, warning) = without_host(pairs(&[("HOST", address)]));
        assert!(env.is_empty());
        assert!(warning.is_some_and(|text| text.contains("set http.listen")), "{address}");
    }
    assert_eq!(without_host(pairs(&[("HOST", "")])), (Vec::new(), None));
    // Under the name `ratelimit` it is the address of the HTTP listener.
    let error = errors(NO_FILE, &[("HOST", "my-laptop.local")], Flags::default());
    assert!(error[0].starts_with("HOST: http.listen: \"my-laptop.local\""), "{error:?}");
}

/// Counting in memory instead would multiply each limit by the number of instances.
#[test]
fn other_backends_than_redis_are_refused() {
    for kind in ["memcache", "redis_decay"] {
        let env = [("BACKEND_TYPE", kind), ("REDIS_URL", "h:1"), ("MEMCACHE_HOST_PORT", "h:2")];
        let lines = errors(NO_FILE, &env, Flags::default());
        assert_eq!(lines.len(), 1, "{lines:?}");
        let start = format!("BACKEND_TYPE={kind}: only redis is supported; write BACKEND_TYPE=");
        assert!(lines[0].starts_with(&start), "{lines:?}");
        for file in ["store: { kind: memory }", "redis: { url: 'redis://h:1' }"] {
            assert!(run(file, &env, Flags::default()).is_ok(), "{file}");
        }
    }
}

/// envoyproxy/ratelimit would wait for its default socket, without opening a port.
#[test]
fn redis_backend_needs_an_address() {
    for env in [&[("BACKEND_TYPE", "redis")][..], &[("BACKEND_TYPE", "REDIS"), ("REDIS_URL", "")]] {
        let lines = errors(NO_FILE, env, Flags::default());
        assert_eq!(lines.len(), 1, "{lines:?}");
        let start = format!("BACKEND_TYPE={}: the address of Redis is missing; set", env[0].1);
        assert!(lines[0].starts_with(&start), "{lines:?}");
        for file in ["store: { kind: memory }", "redis: { url: 'redis://h:1' }"] {
            let loaded = run(file, env, Flags::default()).expect("valid");
            assert_eq!(loaded.warnings, [""; 0], "{file}");
        }
    }
}
