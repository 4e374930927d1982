//! envoyproxy/ratelimit's image: what its name alone changes.

use super::*;

/// Its image looks for rules where nothing says where they are; anything that does wins.
#[test]
fn under_envoy_ratelimit_name_its_own_folder_is_the_default() {
    let paths = |env: &[(&str, &str)]| {
        let loaded = load(&Overrides::default(), &with_default_runtime_root(pairs(env)));
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
        assert_eq!(paths(env), [PathBuf::from(path)], "{env:?}");
    }
}
