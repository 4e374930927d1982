//! Tests that no page and no message shows a secret.

use super::*;

#[test]
fn settings_never_show_a_password() {
    let env = [("WEIR__REDIS__URL", "redis://user:hunter2@h:1")];
    let settings = run(NO_FILE, &env, Flags::default()).expect("valid").settings;
    assert_eq!(settings.redis.url.password, Some(Secret::new("hunter2")));
    assert!(!settings.to_json().to_string().contains("hunter2"));
    assert!(!format!("{settings:?}").contains("hunter2"));
    let wrong =
        [("WEIR__REDIS__URL", "http://u:hunter2@h"), ("WEIR__STORE__KIND", "x://:hunter2@h")];
    let lines = errors(NO_FILE, &wrong, Flags::default());
    assert_eq!(lines.len(), 2);
    assert!(!lines.concat().contains("hunter2"), "{lines:?}");
}
