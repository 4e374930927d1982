//! Vectors: the table of requests and answers in `tests/data/vectors.txt`, and its reader.

use std::iter::Peekable;
use std::str::SplitWhitespace;

use super::{plan, report};
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Lease, LeaseId};
use crate::time::Micros;

const TABLE: &str = include_str!("../../tests/data/vectors.txt");

/// The requests of one counter.
pub(crate) struct Vector {
    pub(crate) limit: Limit,
    pub(crate) asks: Vec<Ask>,
}

/// One request and what it must be answered.
pub(crate) struct Ask {
    pub(crate) line: usize,
    pub(crate) now: Micros,
    pub(crate) hits: i64,
    pub(crate) lease: Option<Lease>,
    /// Allowed, remaining, reset-after.
    pub(crate) answer: (bool, u64, Micros),
}

/// Every vector of the file, in its order.
pub(crate) fn all() -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    for (index, text) in TABLE.lines().enumerate() {
        let text = text.split('#').next().unwrap_or_default();
        let mut words = text.split_whitespace().peekable();
        match words.peek() {
            None => {}
            Some(&"limit") => vectors.push(Vector { limit: limit(words), asks: Vec::new() }),
            Some(_) => {
                let vector = vectors.last_mut().expect("requests follow a limit");
                vector.asks.push(ask(index + 1, words));
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
        let (window, burst) = rest.split_once(':').unwrap_or((rest, requests));
        let window = micros(window.strip_suffix('s').expect("a window in seconds"));
        let number = |text: &str| text.parse().expect("a number");
        tiers.push(Tier { requests: number(requests), window, burst: number(burst) });
    }
    let limit = Limit { algorithm, tiers: tiers.into(), count_denied };
    limit.check().expect("a limit that can be counted");
    limit
}

fn ask(line: usize, mut words: Peekable<SplitWhitespace<'_>>) -> Ask {
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
    Ask { line, now, hits, lease, answer }
}

/// Seconds with at most six decimals.
fn micros(text: &str) -> Micros {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    assert!(part.len() <= 6, "{text} is finer than a microsecond");
    let part: u64 = format!("{part:0<6}").parse().expect("decimals");
    Micros::from_secs(whole.parse().expect("seconds")).saturating_add(Micros(part))
}

#[test]
fn every_request_of_the_table_is_answered_as_it_says() {
    let mut wrong = Vec::new();
    for vector in all() {
        let mut state = None;
        for ask in &vector.asks {
            let mut step = plan(&vector.limit, ask.hits, ask.now);
            step.lease = ask.lease;
            let outcome = step.apply(&mut state);
            let got = report(&vector.limit, &step, &outcome);
            if (got.allowed, got.remaining, got.reset_after) != ask.answer {
                wrong.push(format!("line {}: {:?} but {got:?}", ask.line, ask.answer));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_published_example_passes_eight_denies_two_and_passes_one() {
    // Five in 60 s, every request counted, denied ones too.
    let tier = Tier { requests: 5, window: Micros::from_secs(60), burst: 5 };
    let limit = Limit {
        algorithm: Algorithm::SlidingWindowLog,
        tiers: Box::new([tier]),
        count_denied: true,
    };
    let minute = |hour: u64, minute: u64| 3_600 * hour + 60 * minute;
    let times = [
        (minute(9, 30), vec![20, 25, 50]),
        (minute(9, 31), vec![10, 22, 45, 48]),
        (minute(9, 32), vec![5, 9, 15, 46]),
    ];
    let mut state = None;
    let mut codes = Vec::new();
    for second in times.iter().flat_map(|(start, seconds)| seconds.iter().map(move |s| start + s)) {
        let step = plan(&limit, 1, Micros::from_secs(second));
        let allowed = report(&limit, &step, &step.apply(&mut state)).allowed;
        codes.push(if allowed { 200 } else { 429 });
    }
    assert_eq!(codes, [200, 200, 200, 200, 200, 200, 200, 200, 429, 429, 200]);
}
