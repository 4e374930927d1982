//! Calendar windows: the reset of a response is the end of the period in its zone, and pages show the
//! window.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use serde_json::json;

use crate::support::http::get;
use crate::support::rls::{RateLimitResponse, descriptor, headers, request};
use crate::support::weir::Weir;
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: day
    rate_limit: { requests: 2, window: { calendar: day, zone: Asia/Tokyo, starts: { hour: 6 } } }
  - key: week
    rate_limit: { requests: 2, window: { calendar: week, starts: { weekday: sunday } } }
  - key: month
    rate_limit: { requests: 2, window: { calendar: month, zone: Europe/Zurich } }
  - key: quarter
    rate_limit: { requests: 2, window: { calendar: quarter, zone: America/New_York } }
  - key: year
    rate_limit:
      tiers:
        - requests: 2
          window: { calendar: year, zone: Europe/London, starts: { month: 4, day: 6 } }
        - { requests: 100, window: 1h }
";

const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;

fn now_in(zone: &str) -> Zoned {
    Timestamp::now().to_zoned(TimeZone::get(zone).expect("a zone"))
}

/// The first of these dates whose `hour` is after now, as an instant.
fn next(now: &Zoned, hour: i8, dates: impl Iterator<Item = Date>) -> Timestamp {
    let mut starts = dates.map(|date| {
        let start = date.at(hour, 0, 0, 0).to_zoned(now.time_zone().clone());
        start.expect("a start").timestamp()
    });
    starts.find(|start| *start > now.timestamp()).expect("a later start")
}

/// The dates from `from` on, one per `step`.
fn every(step: Span, from: Date) -> impl Iterator<Item = Date> {
    (0..30_i64).map(move |number| {
        let ahead = step.checked_mul(number).expect("a span");
        from.checked_add(ahead).expect("a date")
    })
}

/// The ends of the windows of the rules.
fn ends() -> [(&'static str, Timestamp); 5] {
    let [tokyo, utc] = ["Asia/Tokyo", "UTC"].map(now_in);
    let [zurich, york, london] = ["Europe/Zurich", "America/New_York", "Europe/London"].map(now_in);
    let of_year = |now: &Zoned, month: i8, day: i8| Date::new(now.date().year(), month, day);
    let sunday = jiff::civil::date(2024, 1, 7);
    let weeks = utc.date().since(sunday).expect("days").get_days() / 7;
    let last_sunday = sunday.checked_add(Span::new().days(7 * weeks)).expect("a date");
    let january = |now: &Zoned| of_year(now, 1, 1).expect("a date");
    let april = of_year(&london, 4, 6).expect("a date");
    [
        ("day", next(&tokyo, 6, every(Span::new().days(1), tokyo.date()))),
        ("week", next(&utc, 0, every(Span::new().days(7), last_sunday))),
        ("month", next(&zurich, 0, every(Span::new().months(1), january(&zurich)))),
        ("quarter", next(&york, 0, every(Span::new().months(3), january(&york)))),
        ("year", next(&london, 0, every(Span::new().years(1), april))),
    ]
}

/// Seconds until the reset of the only status.
fn reset(answer: &RateLimitResponse) -> i64 {
    let reset = answer.statuses[0].duration_until_reset.expect("there is a window");
    assert_eq!(reset.nanos, 0, "whole seconds, as for all fixed windows");
    reset.seconds
}

#[test]
fn the_reset_is_the_end_of_the_period_in_its_zone() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        for (key, end) in ends() {
            for expected in [OK, OK, OVER_LIMIT] {
                let before = Timestamp::now();
                let answer = client.check(request("d", vec![descriptor(&[(key, "x")])]));
                let after = Timestamp::now();
                assert_eq!(answer.overall_code, expected, "{key}");
                let until = |from: Timestamp| (end.as_millisecond() - from.as_millisecond()) as f64;
                let seconds = reset(&answer) as f64;
                // Rounded up, and milliseconds are rounded down here.
                assert!(seconds * 1e3 >= until(after) - 1.0, "{key}: {seconds} s, ends at {end}");
                assert!(seconds * 1e3 <= until(before) + 1_001.0, "{key}: {seconds} s, {end}");
            }
        }
    });
}

#[test]
fn pages_and_headers_show_the_window() {
    within_an_hour(|| {
        let weir =
            Weir::setup().rules("d.yaml", RULES).env("WEIR__RESPONSE__HEADERS", "ietf").start();
        let client = weir.client();
        let ends = ends();
        let answer = client.check(request("d", vec![descriptor(&[("month", "x")])]));
        let sent = headers(&answer);
        let policy = sent.iter().find(|(name, _)| name.eq_ignore_ascii_case("ratelimit-policy"));
        // One number for all months, as for `unit: month`.
        assert_eq!(policy.map(|(_, value)| *value), Some(r#""month";q=2;w=2592000"#));
        let limit = answer.statuses[0].current_limit.clone().expect("a limit");
        assert_eq!((limit.requests_per_unit, limit.unit().as_str_name()), (2, "MONTH"));
        for (key, zone, calendar) in [
            ("day", "Asia/Tokyo", "day"),
            ("week", "UTC", "week"),
            ("month", "Europe/Zurich", "month"),
            ("quarter", "America/New_York", "quarter"),
            ("year", "Europe/London", "year"),
        ] {
            let path = format!("/counters?domain=d&descriptor={key}=x");
            let tier = get(weir.admin, &path).json()["tiers"][0].clone();
            assert_eq!((&tier["calendar"], &tier["zone"]), (&json!(calendar), &json!(zone)));
            let instant = |name: &str| -> Timestamp {
                tier[name].as_str().expect("an instant").parse().expect("RFC 3339")
            };
            let (_, end) = ends.iter().find(|(of, _)| *of == key).expect("its end");
            assert_eq!(instant("window_end"), *end, "{tier}");
            let length = end.as_second() - instant("window_start").as_second();
            assert_eq!(tier["window_seconds"], length as f64, "{tier}");
        }
        let year = get(weir.admin, "/counters?domain=d&descriptor=year=x").json();
        assert!(year["tiers"][1].get("calendar").is_none(), "an hour has no calendar: {year}");
    });
}
