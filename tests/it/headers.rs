//! The limit headers of weir, and the three of envoyproxy/ratelimit.

use crate::support::rls::{Client, RateLimitResponse, descriptor, headers, request};
use crate::support::weir::{Setup, Weir};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: small
    rate_limit: { name: small, unit: hour, requests_per_unit: 2 }
  - key: large
    rate_limit: { unit: day, requests_per_unit: 10 }
  - key: other
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
";

fn setup() -> Setup {
    Weir::setup().rules("d.yaml", RULES)
}

/// Sends descriptors with one entry each, all with the value `x`.
fn check(client: &Client, keys: &[&str]) -> RateLimitResponse {
    client.check(request("d", keys.iter().map(|key| descriptor(&[(key, "x")])).collect()))
}

/// The headers of a response, with names in lower case as Envoy forwards them. `T` replaces the
/// seconds to the end of an hour or a day.
fn shown(answer: &RateLimitResponse) -> Vec<String> {
    let show = |(name, value): &(&str, &str)| {
        let seconds = |text: &str| text.parse::<u64>().is_ok_and(|s| (1..=86_400).contains(&s));
        let name = name.to_ascii_lowercase();
        let timed = name.ends_with("-reset") || name == "retry-after";
        let value: &str = if timed && seconds(value) { "T" } else { value };
        format!("{name}: {value}")
    };
    headers(answer).iter().map(show).collect()
}

#[test]
fn headers_are_off_by_default() {
    within_an_hour(|| {
        for setup in [setup(), setup().env("WEIR__RESPONSE__HEADERS", "off")] {
            let weir = setup.start();
            let client = weir.client();
            for _ in 0..3 {
                assert_eq!(shown(&check(&client, &["small"])), [""; 0]);
            }
        }
    });
}

#[test]
fn envoy_ratelimit_headers_show_the_tightest_limit() {
    within_an_hour(|| {
        let weir = setup().env("LIMIT_RESPONSE_HEADERS_ENABLED", "true").start();
        let client = weir.client();
        let three = |limit: u32, left: u32| {
            vec![
                format!("ratelimit-limit: {limit}"),
                format!("ratelimit-remaining: {left}"),
                "ratelimit-reset: T".to_owned(),
            ]
        };
        assert_eq!(shown(&check(&client, &["small", "large"])), three(2, 1), "least remaining");
        assert_eq!(shown(&check(&client, &["large", "free", "nothing"])), three(10, 8));
        assert_eq!(shown(&check(&client, &["nothing"])), [""; 0]);
        assert_eq!(shown(&check(&client, &["free"])), [""; 0]);
        assert_eq!(shown(&check(&client, &["small", "other"])), three(2, 0), "the first of equals");
        assert_eq!(shown(&check(&client, &["small", "other"])), three(1, 0), "the last one over");
        assert_eq!(shown(&check(&client, &["other", "large"])), three(1, 0));
        check(&client, &["quota"]);
        assert_eq!(shown(&check(&client, &["large", "quota"])), three(1, 0), "least remaining");
        assert_eq!(shown(&check(&client, &["other", "quota"])), three(1, 0));
    });
}

#[test]
fn envoy_ratelimit_headers_can_be_renamed() {
    within_an_hour(|| {
        let weir = setup()
            .env("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
            .env("LIMIT_LIMIT_HEADER", "My-Limit")
            .env("LIMIT_REMAINING_HEADER", "My-Remaining")
            .env("LIMIT_RESET_HEADER", "My-Reset")
            .start();
        let headers = shown(&check(&weir.client(), &["large"]));
        assert_eq!(headers, ["my-limit: 10", "my-remaining: 9", "my-reset: T"]);
    });
}

/// The headers have the form that Envoy itself writes, so that clients need no change.
#[test]
fn x_ratelimit_has_the_form_of_envoy() {
    within_an_hour(|| {
        let weir = setup().env("WEIR__RESPONSE__HEADERS", "x-ratelimit").start();
        let client = weir.client();
        let limits = r#"x-ratelimit-limit: 2, 10;w=86400, 2;w=3600;name="small""#;
        let left = |left: u32| format!("x-ratelimit-remaining: {left}");
        let reset = "x-ratelimit-reset: T".to_owned();
        let passed = shown(&check(&client, &["large", "small"]));
        assert_eq!(passed, [limits.to_owned(), left(1), reset.clone()]);
        check(&client, &["large", "small"]);
        let refused = shown(&check(&client, &["large", "small"]));
        assert_eq!(refused, [limits.to_owned(), left(0), reset, "retry-after: T".to_owned()]);
        assert_eq!(shown(&check(&client, &["nothing"])), [""; 0]);
    });
}

/// draft-ietf-httpapi-ratelimit-headers-11: `RateLimit-Policy` and `RateLimit` are lists of named
/// items with parameters. A policy has q and w, a state has r and t.
#[test]
fn ietf_headers_list_policies_and_states() {
    within_an_hour(|| {
        let weir = setup().env("WEIR__RESPONSE__HEADERS", "ietf").start();
        let client = weir.client();
        let answer = check(&client, &["large", "small"]);
        let headers = headers(&answer);
        let find = |name: &str| {
            let found = headers.iter().find(|header| header.0.eq_ignore_ascii_case(name));
            found.unwrap_or_else(|| panic!("no {name} in {headers:?}")).1
        };
        assert_eq!(find("ratelimit-policy"), r#""large";q=10;w=86400, "small";q=2;w=3600"#);
        let state: Vec<&str> = find("ratelimit").split(", ").collect();
        assert!(state[0].starts_with(r#""small";r=1;t="#), "most restrictive first: {state:?}");
        assert!(state[1].starts_with(r#""large";r=9;t="#), "{state:?}");
        assert_eq!(state.len(), 2);
        assert!(headers.iter().all(|header| header.0 != "retry-after"), "{headers:?}");
    });
}

#[test]
fn both_header_families_can_be_combined() {
    within_an_hour(|| {
        let weir = setup().env("WEIR__RESPONSE__HEADERS", "both").start();
        let client = weir.client();
        let answer = check(&client, &["other"]);
        let names = |answer: &RateLimitResponse| {
            let mut names: Vec<String> =
                headers(answer).iter().map(|header| header.0.to_ascii_lowercase()).collect();
            names.sort();
            names
        };
        let mut all = vec![
            "ratelimit",
            "ratelimit-policy",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
        ];
        assert_eq!(names(&answer), all);
        all.insert(2, "retry-after");
        assert_eq!(names(&check(&client, &["other"])), all);
    });
}
