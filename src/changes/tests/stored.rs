//! The form in which changes are stored, and bytes that are no change.

use proptest::prelude::*;

use super::*;
use crate::descriptor::Entry;

#[test]
fn a_stored_change_is_read_back() {
    let burst = ChangeAction::Limit(vec![TierNumbers { requests: 1, burst: Some(2) }]);
    for one in [
        change("user", limit(&[3])),
        change("path", limit(&[1, 2])),
        change("tokens", burst),
        change("user=a\"b\n,x=", ChangeAction::Block),
        change("user", ChangeAction::Bypass),
    ] {
        let json = one.to_json();
        assert_eq!(TemporaryChange::from_json("1", json.as_bytes()), Ok(one), "{json}");
    }
}

/// Instances of several versions share the form, so it must not change.
#[test]
fn the_stored_form_is_this_one() {
    let json = change("user=ann", limit(&[3])).to_json();
    let expected = r#"{"domain":"d","descriptor":[["user","ann"]],"action":"limit","#.to_owned()
        + r#""limit":[{"requests":3}],"until":1700000060000000,"made_at":1700000000000000,"#
        + r#""reason":"a test","by":"ann"}"#;
    assert_eq!(json, expected);
}

#[test]
fn other_bytes_are_no_change() {
    let good = change("user", ChangeAction::Block).to_json();
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    for (bad, why) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "invalid"),
        ("[".repeat(4_000), "invalid type"),
        (with(r#""rule":"user","#, ""), "either `rule` or `descriptor`"),
        (with(r#""rule":"user""#, r#""descriptor":[]"#), "either `rule` or `descriptor`"),
        (
            with(r#""rule":"user""#, r#""rule":"user","descriptor":[["k","v"]]"#),
            "either `rule` or `descriptor`",
        ),
        (with(r#""action":"block""#, r#""action":"explode""#), "`action` is unknown"),
        (with(r#""action":"block""#, r#""action":"limit""#), "does not fit `limit`"),
        (with(r#""action":"block""#, r#""action":"limit","limit":[]"#), "does not fit `limit`"),
        (with(r#""by":"ann""#, r#""by":"ann","only_for":"x""#), "unknown field"),
        (with(r#""until":17"#, r#""until":-17"#), "invalid value"),
        (with("a test", &"x".repeat(CHANGE_BYTES_MAX)), "more than 4096"),
    ] {
        let error = TemporaryChange::from_json("1", bad.as_bytes()).expect_err(&bad);
        assert!(error.contains(why), "{error}: {bad:.200}");
    }
}

#[test]
fn an_instant_has_all_its_digits() {
    assert_eq!(instant_text(NOW), "2023-11-14T22:13:20Z");
    assert_eq!(instant_text(Micros(NOW.0 + 120)), "2023-11-14T22:13:20.000120Z");
    assert!(instant_text(Micros(u64::MAX)).ends_with('Z'), "no panic");
}

proptest! {
    /// Another program may write into Redis.
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = TemporaryChange::from_json("1", &bytes);
        let _ = ChangeRequest::from_json(&bytes);
    }

    /// Mutations of a valid change reach further.
    #[test]
    fn no_mutation_panics(at in 0_usize..200, byte in any::<u8>()) {
        let mut json = change("path", limit(&[1, u64::MAX])).to_json().into_bytes();
        let at = at % json.len();
        json[at] = byte;
        if let Ok(read) = TemporaryChange::from_json("1", &json) {
            let rules = rules();
            let active = ActiveChanges::compile(vec![read], &rules);
            let entries = [Entry { key: "path", value: "x" }];
            let _ = active.of(found(&rules, "path=x"), "d", &entries, NOW);
        }
    }
}
