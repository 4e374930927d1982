//! Requests for changes: what they may say, and what the rules say about them.

use super::*;

/// The change of a body, made at [`NOW`].
fn made(body: &str) -> Result<TemporaryChange, String> {
    let request = ChangeRequest::from_json(body.as_bytes())?;
    let change = request.into_change("1".to_owned(), "ann".to_owned(), &rules(), &BOUNDS, NOW);
    change.map_err(|problem| match problem {
        ChangeProblem::Invalid(why) => why,
        ChangeProblem::Unknown(why) => format!("unknown: {why}"),
        ChangeProblem::Conflict(why) => format!("conflict: {why}"),
        ChangeProblem::Store(why) => panic!("{why}"),
    })
}

#[test]
fn a_body_is_a_change() {
    let after = |seconds| NOW.saturating_add(Micros::from_secs(seconds));
    for (body, target, action, until) in [
        (
            r#"{"domain":"d","rule":"per-user","limit":5,"for":"1h30m"}"#,
            "user",
            limit(&[5]),
            after(5_400),
        ),
        (
            r#"{"domain":"d","rule":"user","block":true,"for":"90d"}"#,
            "user",
            ChangeAction::Block,
            { after(90 * 86_400) },
        ),
        (
            r#"{"domain":"d","rule":"path","limit":[1,{"requests":2}],"for":"1s"}"#,
            "path",
            limit(&[1, 2]),
            after(1),
        ),
        (
            r#"{"domain":"d","descriptor":"user=a\\,b","bypass":true,"for":"1s"}"#,
            "user=a\\,b",
            ChangeAction::Bypass,
            after(1),
        ),
        (
            r#"{"domain":"d","descriptor":{"entries":[{"key":"x"}]},"block":true,"for":"1ms"}"#,
            "x=",
            ChangeAction::Block,
            after(1),
        ),
        (
            r#"{"domain":"d","rule":"tokens","limit":{"requests":1,"burst":2},
                "until":"2023-11-14T23:13:21.5+01:00"}"#,
            "tokens",
            ChangeAction::Limit(vec![TierNumbers { requests: 1, burst: Some(2) }]),
            Micros(NOW.0 + 1_500_000),
        ),
        (
            r#"{"domain":"d","rule":"user","block":true,"until":"2023-11-15"}"#,
            "user",
            ChangeAction::Block,
            after(6_400),
        ),
    ] {
        let change = made(body).unwrap_or_else(|error| panic!("{body}: {error}"));
        assert_eq!(change.target.selector(), target);
        assert_eq!((&change.action, change.until, change.made_at), (&action, until, NOW), "{body}");
        assert_eq!((&*change.domain, &*change.by, &*change.reason), ("d", "ann", ""));
    }
    let said = r#"{"domain":"d","rule":"user","block":true,"for":"1s","reason":"a \"test\""}"#;
    assert_eq!(made(said).expect("a change").reason, "a \"test\"");
}

#[test]
fn a_wrong_body_says_what_to_write() {
    let user = |rest: &str| format!(r#"{{"domain":"d","rule":"user",{rest}}}"#);
    let rest = r#""block":true,"for":"1s""#;
    for (body, why) in [
        (String::new(), "write {"),
        ("[]".to_owned(), "write {"),
        (user(r#""blok":true,"for":"1s""#), "unknown field `blok`"),
        (format!(r#"{{"domain":"d",{rest}}}"#), "either `rule` or `descriptor`"),
        (user(&format!(r#""descriptor":"user=a",{rest}"#)), "either `rule` or `descriptor`"),
        (format!(r#"{{"domain":"d","descriptor":{{"entries":[]}},{rest}}}"#), "no entries"),
        (format!(r#"{{"domain":"d","descriptor":"user",{rest}}}"#), "has no value"),
        (format!(r#"{{"domain":"d","descriptor":7,{rest}}}"#), "write `descriptor` as"),
        (user(r#""for":"1s""#), "one of `limit`"),
        (user(r#""block":false,"for":"1s""#), "one of `limit`"),
        (user(r#""block":true,"bypass":true,"for":"1s""#), "one of `limit`"),
        (user(r#""block":true,"limit":1,"for":"1s""#), "one of `limit`"),
        (user(r#""limit":-1,"for":"1s""#), "write `limit` as"),
        (user(r#""limit":1.5,"for":"1s""#), "write `limit` as"),
        (user(r#""limit":{"requests":1,"brst":2},"for":"1s""#), "write `limit` as"),
        (user(r#""limit":[],"for":"1s""#), "the rule has 1"),
        (user(r#""limit":[1,2],"for":"1s""#), "the rule has 1"),
        (user(r#""limit":{"requests":1,"burst":2},"for":"1s""#), "`burst` applies only"),
        (user(r#""limit":9007199254740992,"for":"1s""#), "too many"),
        (user(r#""block":true"#), "either `until`"),
        (user(r#""block":true,"for":"1s","until":"2030-01-01T00:00:00Z""#), "either `until`"),
        (user(r#""block":true,"for":"1 hour""#), "for: `1 hour` is no duration"),
        (user(r#""block":true,"for":"0s""#), "for: `0s` is no duration"),
        (user(r#""block":true,"for":"2161h""#), "write at most 90d"),
        (user(r#""block":true,"for":"99999999d""#), "write at most 90d"),
        (user(r#""block":true,"until":"tomorrow""#), "no instant of RFC 3339"),
        (user(r#""block":true,"until":"1960-01-01T00:00:00Z""#), "no instant of RFC 3339"),
        (user(r#""block":true,"until":"2023-11-14T22:13:20Z""#), "is over"),
        (user(r#""block":true,"until":"2024-02-12T22:13:21Z""#), "too far ahead"),
        (user(&format!(r#"{rest},"reason":"{}""#, "x".repeat(501))), "501 characters"),
        (user(rest).replace("\"d\"", "\"dd\""), "did you mean `d`?"),
        (user(rest).replace("\"d\"", "\"elsewhere\""), "unknown: domain: neither"),
        (user(rest).replace("user", "per-usr"), "did you mean `per-user`?"),
        (user(rest).replace("user", "twice"), "conflict: rule: `twice` is the name of several"),
        (user(rest).replace("user", "twice"), "`a`, `b`"),
        (user(r#""limit":1,"for":"1s""#).replace("\"user\"", "\"user=root\""), "unlimited"),
        (
            r#"{"domain":"d","descriptor":"no=x","limit":1,"for":"1s"}"#.to_owned(),
            "unknown: descriptor: no rule limits it",
        ),
        (
            format!(r#"{{"domain":"d","descriptor":"x={}",{rest}}}"#, "v".repeat(8_001)),
            "more than 8000",
        ),
        (
            format!(r#"{{"domain":"d","descriptor":"x={}",{rest}}}"#, "v".repeat(5_000)),
            "more than 4096; shorten",
        ),
        (
            format!(r#"{{"domain":"d","descriptor":"a=1,b=2,c=3,d=4,e=5",{rest}}}"#),
            "5 entries, more than 4",
        ),
    ] {
        let error = made(&body).expect_err(&body);
        assert!(error.contains(why), "{body:.200}\n{error}\nlacks: {why}");
        assert!(error.len() < 1_000, "{error:.2000}");
    }
}
