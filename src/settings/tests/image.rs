//! Tests of the defaults under the name of envoyproxy/ratelimit's binary.

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
