//! The accuracy of sliding_window: Cloudflare's published study, repeated with simulated traffic.
//!
//! Cloudflare compared the sliding window counter with the exact rate on 400 million requests of
//! 270 000 sources. 0.003 % were wrongly allowed or limited. The two rates differed by 6 % on
//! average. 3 sources over the threshold were missed (by less than 15 %), and none under it was
//! limited. J. Desgats, "How we built rate limiting capable of scaling to millions of domains",
//! 2017: <https://blog.cloudflare.com/counting-things-a-lot-of-different-things/>.
//!
//! That traffic and its limits were not published, and the share of wrong decisions depends on
//! them: far from the limit every estimate is good enough. So this study has the same size with
//! four kinds of simulated traffic, from quiet to hostile, and the limit of the article's example,
//! 50 requests per minute. Nothing is tuned to the published figures. weir's own sliding_window and
//! an exact log decide every request, and every decision is checked against the formula in exact
//! integers.
//!
//! `make accuracy` runs all of it, `cargo bench --bench accuracy -- 40` a tenth. The exit status is
//! 1 when weir contradicts the formula or the log.

use std::process::ExitCode;
use std::time::Instant;

mod accuracy {
    pub(crate) mod study;
    pub(crate) mod traffic;
}

use accuracy::study::{self, Tally};
use accuracy::traffic::{Traffic, Volume};

/// A row of the table: its name, the published figure, and the measured one.
type Row = (&'static str, &'static str, fn(&Tally) -> String);

/// The example of the article.
const LIMIT: u64 = 50;
const VOLUME: Volume = Volume { requests: 0, sources: 0, limit: LIMIT, window: 60_000_000 };

const COUNTED: &[Row] = &[
    ("wrongly allowed or limited", "0.003 %", |t| {
        percent(t.wrongly_allowed + t.wrongly_limited, t.requests)
    }),
    ("  wrongly allowed", "", |t| percent(t.wrongly_allowed, t.requests)),
    ("  wrongly limited", "", |t| percent(t.wrongly_limited, t.requests)),
    ("decided with the real rate near the limit", "", |t| percent(t.near_limit, t.requests)),
    ("  of all others, wrong", "", |t| percent(t.wrong_elsewhere, t.requests - t.near_limit)),
    ("mean difference from the real rate", "6 %", |t| format!("{:.1} %", 100.0 * t.mean_error())),
    ("  as reported, in whole hits", "", |t| format!("{:.1} %", 100.0 * t.mean_reported_error())),
    ("sources that were over the limit", "", |t| t.over_sources.to_string()),
    ("  never limited", "3", |t| t.missed_sources.to_string()),
    ("  and over it by at most", "15 %", |t| match t.missed_most {
        0 => "-".to_owned(),
        most => format!("{} %", 100 * (most - LIMIT) / LIMIT),
    }),
    ("sources limited, never over it", "0", |t| t.blamed_sources.to_string()),
];

const ADMITTED: &[Row] = &[
    ("wrongly allowed", "", |t| percent(t.over_admitted, t.requests)),
    ("wrongly limited", "", |t| percent(t.under_admitted, t.requests)),
    ("passed, of what an exact log lets pass", "", |t| percent(t.admitted, t.log_admitted)),
    ("most in any window, of the limit", "", |t| format!("{} %", 100 * t.most_admitted / LIMIT)),
];

fn percent(part: u64, whole: u64) -> String {
    format!("{:.4} %", 100.0 * part as f64 / whole.max(1) as f64)
}

fn print(title: &str, rows: &[Row], tallies: &[Tally]) {
    println!("\n{title}");
    for (name, published, figure) in rows {
        print!("  {name:<40}{published:>11}");
        tallies.iter().for_each(|tally| print!("{:>11}", figure(tally)));
        println!();
    }
}

fn main() -> ExitCode {
    // `cargo bench` adds its own argument.
    let millions = std::env::args().find_map(|argument| argument.parse::<u64>().ok());
    let millions = millions.unwrap_or(400).max(10);
    println!("sliding_window, {LIMIT} requests per minute; takes a minute or two");
    let mut tallies = Vec::new();
    for traffic in [Traffic::Steady, Traffic::Bursty, Traffic::Near, Traffic::Edge] {
        // Sources near the limit are all alike, and so are those at the edges: a tenth is enough.
        let millions = match traffic {
            Traffic::Steady | Traffic::Bursty => millions,
            Traffic::Near | Traffic::Edge => millions / 10,
        };
        let (requests, sources) = (millions * 1_000_000, millions * 675);
        let start = Instant::now();
        tallies.push(study::run(traffic, Volume { requests, sources, ..VOLUME }));
        let seconds = start.elapsed().as_secs_f64();
        println!("{traffic:?}: {millions} million requests of {sources} sources, {seconds:.1} s");
    }
    let names = ["published", "steady", "bursty", "near", "edge"];
    print!("\n{:<42}", "");
    names.iter().for_each(|name| print!("{name:>11}"));
    println!();
    print("every request counts, as in the study (count_denied: true)", COUNTED, &tallies);
    print("denied requests do not count (the default)", ADMITTED, &tallies);
    let contradictions: u64 = tallies.iter().map(|tally| tally.contradictions).sum();
    println!("\ndecisions that contradict the formula or the exact log: {contradictions}");
    ExitCode::from(u8::from(contradictions > 0))
}
