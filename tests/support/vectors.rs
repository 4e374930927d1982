//! The reader of `tests/data/vectors.txt`, a table of requests and expected decisions.

use std::iter::Peekable;
use std::str::SplitWhitespace;

use weir::limit::{Algorithm, Calendar, Limit, Period, Tier, WindowStart, Zone};
use weir::step::{Lease, LeaseId};
use weir::time::Micros;

const TABLE: &str = include_str!("../data/vectors.txt");

/// The requests of one counter.
pub(crate) struct Vector {
    pub(crate) limit: Limit,
    pub(crate) operations: Vec<Operation>,
}

/// One request and its expected decision.
pub(crate) struct Operation {
    pub(crate) line: usize,
    pub(crate) now: Micros,
    pub(crate) hits: i64,
    pub(crate) lease: Option<Lease>,
    /// The decision: allowed, remaining, reset-after.
    pub(crate) answer: (bool, u64, Micros),
}

/// Every vector, in the order of the file.
pub(crate) fn all() -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    for (index, text) in TABLE.lines().enumerate() {
        let text = text.split('#').next().unwrap_or_default();
        let mut words = text.split_whitespace().peekable();
        match words.peek() {
            None => {}
            Some(&"limit") => vectors.push(Vector { limit: limit(words), operations: Vec::new() }),
            Some(_) => {
                let vector = vectors.last_mut().expect("requests follow a limit");
                vector.operations.push(operation(index + 1, words));
            }
        }
    }
    vectors
}

fn limit(mut words: Peekable<SplitWhitespace<'_>>) -> Limit {
    words.next();
    let name = words.next().expect("an algorithm");
    let algorithm = Algorithm::from_name(name).expect("an algorithm of that name");
    let (mut tiers, mut count_denied) = (Vec::new(), false);
    for word in words {
        if word == "count_denied" {
            count_denied = true;
            continue;
        }
        let (requests, rest) = word.split_once('/').expect("requests/window");
        let number = |text: &str| text.parse().expect("a number");
        if let Some((period, zone)) = rest.split_once('@') {
            let period = Period::from_name(period).expect("a period");
            let zone = Zone::named(zone).expect("a zone");
            let calendar = Calendar { period, zone, starts: WindowStart::FIRST };
            tiers.push(Tier::by_calendar(number(requests), calendar));
            continue;
        }
        let (window, burst) = rest.split_once(':').unwrap_or((rest, requests));
        let window = micros(window.strip_suffix('s').expect("a window in seconds"));
        tiers.push(Tier {
            requests: number(requests),
            window,
            burst: number(burst),
            calendar: None,
        });
    }
    let limit = Limit { algorithm, tiers: tiers.into(), count_denied };
    limit.check().expect("a limit that can be counted");
    limit
}

fn operation(line: usize, mut words: Peekable<SplitWhitespace<'_>>) -> Operation {
    let mut next = || words.next().unwrap_or_else(|| panic!("line {line} is too short"));
    let (now, hits) = (micros(next()), next().parse().expect("hits"));
    let allowed = match next() {
        "ok" => true,
        "over" => false,
        other => panic!("line {line}: {other} is neither ok nor over"),
    };
    let answer = (allowed, next().parse().expect("remaining"), micros(next()));
    let lease = words.next().map(|what| {
        let id = words.next().and_then(|id| id.parse().ok()).map(LeaseId::from_bits);
        let id = id.expect("the number of a lease");
        match what {
            "open" => Lease::Open { id, until: now.saturating_add(Micros::from_secs(600)) },
            "close" => Lease::Close(id),
            other => panic!("line {line}: {other} is neither open nor close"),
        }
    });
    Operation { line, now, hits, lease, answer }
}

/// Seconds with at most six decimals.
fn micros(text: &str) -> Micros {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    assert!(part.len() <= 6, "{text} is finer than a microsecond");
    let part: u64 = format!("{part:0<6}").parse().expect("decimals");
    Micros::from_secs(whole.parse().expect("seconds")).saturating_add(Micros(part))
}
