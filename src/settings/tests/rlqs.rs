//! Tests of the settings of the quota service.

use std::time::Duration;

use super::*;

#[test]
fn rlqs_settings_are_checked() {
    let table = [
        ("{assignment_ttl: 9s}", "at least 10s"),
        ("{assignment_ttl: 10500ms}", "is no whole number of seconds"),
        ("{assignment_ttl: 0}", "at least 10s"),
        ("{idle_timeout: 0}", "is zero"),
        ("{key_order: 'policy, tenant, policy'}", "has `policy` twice"),
        ("{burst_percent: 101}", "from 0 to 100"),
        ("{max_streams: 0}", "from 1 to 1000000"),
        ("{max_message_bytes: 1023}", "from 1024 to 67108864"),
    ];
    for (section, part) in table {
        let lines = errors(&format!("rlqs: {section}"), &[], Flags::default());
        assert!(lines.len() == 1 && lines[0].contains(part), "{section}: {lines:?}");
    }
}

#[test]
fn rlqs_settings_are_read() {
    let file = "rlqs: {assignment_ttl: 10s, key_order: ' policy,, tenant ,'}";
    let rlqs = run(file, &[], Flags::default()).expect("valid").settings.rlqs;
    assert_eq!(rlqs.assignment_ttl, Duration::from_secs(10));
    assert_eq!(rlqs.key_order, ["policy", "tenant"]);
    assert_eq!(RlqsSettings::default().key_order, [""; 0]);
}
