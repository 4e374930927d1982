//! The targets of docs/design/performance.md, and whether the figures keep them.

use weir_charts::short;

use crate::comparison::Comparison;
use crate::figures::Figures;
use crate::{batches, fleet, rounds, saturated_peers, through_envoy};

/// A target: the measure, its figure, and its bound.
type Target = (&'static str, fn(&Figures) -> Option<f64>, Bound);

#[derive(Clone, Copy)]
enum Bound {
    Most(f64),
    Least(f64),
}

use Bound::{Least, Most};

/// The figure of `make pauses`.
pub(crate) const LONGEST_TURN: &str = "make pauses: longest turn of a core thread, ms";

const TARGETS: &[Target] = &[
    (
        "memory, saturated: server CPU per call, of the baseline's",
        |f| {
            f.ratio(
                "saturated: CPU s per 100 000: memory",
                "saturated: CPU s per 100 000: baseline",
            )
        },
        Most(0.7),
    ),
    (
        "memory, saturated: server CPU per call, of h2 alone with a constant",
        |f| f.ratio("saturated: CPU s per 100 000: memory", "saturated: CPU s per 100 000: h2"),
        Most(1.6),
    ),
    (
        "Redis, saturated: server CPU per call, of the baseline's",
        |f| {
            f.ratio("saturated: CPU s per 100 000: Redis", "saturated: CPU s per 100 000: baseline")
        },
        Most(2.5),
    ),
    (
        "Redis, saturated: Redis CPU per decision, of one FCALL of weir's function each",
        |f| {
            f.ratio("saturated: Redis CPU s per million", "one FCALL each: Redis CPU s per million")
        },
        Most(0.5),
    ),
    (
        "Redis, saturated: Redis CPU per decision, of one EVALSHA of INCRBY and PEXPIRE each",
        |f| {
            f.ratio(
                "saturated: Redis CPU s per million",
                "one plain EVALSHA each: Redis CPU s per million",
            )
        },
        Most(0.5),
    ),
    (
        "one client: Redis CPU per step in calls of 16, of one EVALSHA of INCRBY and PEXPIRE each",
        |f| f.ratio(&rounds::call_figure(16), "one plain EVALSHA each: Redis CPU s per million"),
        Most(1.0),
    ),
    (
        "one client: Redis CPU per step in calls of 64, of one EVALSHA of INCRBY and PEXPIRE each",
        |f| f.ratio(&rounds::call_figure(64), "one plain EVALSHA each: Redis CPU s per million"),
        Most(1.0),
    ),
    (
        "Redis, saturated, 10 counters: Redis CPU per decision, \
         of one EVALSHA of INCRBY and PEXPIRE each",
        |f| batches::of_plain(f, "10 counters, uniform"),
        Most(0.5),
    ),
    (
        "Redis, saturated, 10 counters by Zipf: Redis CPU per decision, \
         of one EVALSHA of INCRBY and PEXPIRE each",
        |f| batches::of_plain(f, "10 counters, Zipf 1.0"),
        Most(0.5),
    ),
    (
        "Redis, saturated, 1 000 counters: Redis CPU per decision, \
         of one EVALSHA of INCRBY and PEXPIRE each",
        |f| batches::of_plain(f, "1 000 counters, uniform"),
        Most(0.5),
    ),
    (
        "Redis, saturated, 1 000 counters by Zipf: Redis CPU per decision, \
         of one EVALSHA of INCRBY and PEXPIRE each",
        |f| batches::of_plain(f, "1 000 counters, Zipf 1.0"),
        Most(0.5),
    ),
    (
        "a primary is killed: p99.9 of the seconds around it, ms",
        |f| Some(f.get("primary killed: p99.9, us: across")? / 1e3),
        // The store timeout plus 5 ms.
        Most(15.0),
    ),
    (
        "a primary stalls: p99.9 of the seconds around it, ms",
        |f| Some(f.get("primary stalled: p99.9, us: across")? / 1e3),
        Most(15.0),
    ),
    (
        "a primary stalls: p99 once its breaker is open, of the p99 before",
        |f| f.ratio("primary stalled: p99, us: after", "primary stalled: p99, us: before"),
        Most(2.0),
    ),
    (
        "inside the process: million decisions per second and core, 1 000 counters",
        |f| f.get("inside: million decisions per CPU second: 1 000 counters"),
        Least(5.0),
    ),
    (
        "inside the process: million decisions per second and core, 1 million counters",
        |f| f.get("inside: million decisions per CPU second: 1 M counters"),
        Least(1.0),
    ),
    (
        "memory of 1 million counters above idle, MB",
        |f| f.get("1 M counters: above idle, MB"),
        Most(64.0),
    ),
    (
        "memory of 10 million counters above idle, MB",
        |f| f.get("10 M counters: above idle, MB"),
        Most(640.0),
    ),
    (
        "1 million counters, 5 000 per second: p99, of that of 1 000 counters",
        |f| f.get("1 M counters: p99, of that of 1 000"),
        Most(1.2),
    ),
    (
        "10 million counters, 5 000 per second: p99, of that of 1 000 counters",
        |f| f.get("10 M counters: p99, of that of 1 000"),
        Most(1.2),
    ),
    ("idle: resident memory, MiB", |f| f.get("idle: resident, MiB"), Most(30.0)),
    ("idle: CPU, %", |f| f.get("idle: CPU, %"), Most(0.1)),
    (
        "start to first answer with 10 000 rules, ms",
        |f| f.get("10 000 rules: start to first answer, ms"),
        Most(100.0),
    ),
    ("start with 10 000 rules, ms", |f| f.get("10 000 rules: start, ms"), Most(30.0)),
    (
        "start with 1 000 000 rules, s",
        |f| Some(f.get("1 000 000 rules: start, ms")? / 1e3),
        Most(3.0),
    ),
    (
        "1 000 000 rules: most resident memory, reloads included, MB",
        |f| f.get("1 000 000 rules: peak with reloads, MB"),
        Most(1000.0),
    ),
    (
        "10 000 rules: p99 of calls during reloads, of that before",
        |f| f.ratio("10 000 rules: p99 during reloads, us", "10 000 rules: p99 before, us"),
        Most(1.2),
    ),
    (
        "1 000 000 rules: p99 of calls during reloads, of that before",
        |f| f.ratio("1 000 000 rules: p99 during reloads, us", "1 000 000 rules: p99 before, us"),
        Most(1.2),
    ),
    ("longest turn of a core thread, by `make pauses`, ms", |f| f.get(LONGEST_TURN), Most(1.0)),
    ("stripped binary, MB", |f| f.get("binary: stripped, MB"), Most(20.0)),
];

/// Targets that need an option of the run. They have no row without figures.
const OPTIONAL_TARGETS: &[Target] = &[
    (
        "Redis, saturated: Redis CPU per decision, of envoyproxy/ratelimit's",
        saturated_peers::redis_ratio,
        Most(1.1),
    ),
    (
        "Redis, saturated: CPU of Redis, this build, of the build before",
        |f| f.ratio(&rounds::redis_cpu_figure("Redis"), &rounds::redis_cpu_figure("Redis, before")),
        Most(0.5),
    ),
];

/// Targets that compare servers at a fixed rate, and the names in the figures: of the subject, and of the
/// reference.
const OPEN_TARGETS: &[(Target, [&str; 2])] = &[
    (
        (
            "memory, 5 000 per second: p99, of the baseline's",
            |f| f.ratio("open: p99, us: memory", "open: p99, us: baseline"),
            Most(1.2),
        ),
        ["memory", "baseline"],
    ),
    (
        (
            "Redis, 5 000 per second: p99 less the baseline's, in p99 of a PING meanwhile",
            |f| {
                let more = f.get("open: p99, us: Redis")? - f.get("open: p99, us: baseline")?;
                Some(more / f.get("open: PING p99, us")?)
            },
            Most(2.0),
        ),
        ["Redis", "baseline"],
    ),
    (
        (
            "Redis, 5 000 per second: p99 less that from memory, in p99 of a PING meanwhile",
            |f| {
                let more = f.get("open: p99, us: Redis")? - f.get("open: p99, us: memory")?;
                Some(more / f.get("open: PING p99, us")?)
            },
            Most(2.0),
        ),
        ["Redis", "memory"],
    ),
];

/// The rows of the table.
pub(crate) fn rows(figures: &Figures) -> String {
    let row = |row: Row| {
        let (bound, verdict) = (row.bound.shown(), row.verdict());
        format!("| {} | {bound} | {} | {verdict} |\n", row.name, row.value.cell(short))
    };
    all(figures).into_iter().map(row).collect()
}

/// The rows of both runs, beside each other, where both have a figure.
pub(crate) fn beside(figures: &Figures, other: &Figures) -> String {
    let there = all(other);
    let row = |row: Row| {
        let there = there.iter().find(|there| there.name == row.name)?;
        let has_both = [&row, there].iter().all(|row| row.value != Comparison::NotMeasured);
        let [here, there] = [&row, there].map(|row| row.value.cell(short));
        let bound = row.bound.shown();
        has_both.then(|| format!("| {} | {bound} | {here} | {there} |\n", row.name))
    };
    all(figures).into_iter().filter_map(row).collect()
}

/// A row: what is measured, the figure, and its bound.
struct Row {
    name: String,
    value: Comparison,
    bound: Bound,
}

fn all(figures: &Figures) -> Vec<Row> {
    let given = OPTIONAL_TARGETS.iter().filter(|(_, figure, _)| figure(figures).is_some());
    let plain = TARGETS.iter().chain(given).map(|(name, figure, bound)| {
        let value = Comparison::new(figure(figures), [], []);
        Row { name: (*name).to_owned(), value, bound: *bound }
    });
    let open = OPEN_TARGETS.iter().map(|((name, figure, bound), servers)| {
        let [subject, reference] = servers.map(|server| rounds::paced(figures, server));
        let value = Comparison::new(figure(figures), [subject], [reference]);
        Row { name: (*name).to_owned(), value, bound: *bound }
    });
    let compared = through_envoy::targets(figures).into_iter().chain(fleet::targets(figures));
    let compared = compared.map(|(name, value, most)| Row { name, value, bound: Most(most) });
    plain.chain(open).chain(compared).collect()
}

impl Row {
    fn verdict(&self) -> String {
        self.value.verdict(|value| match self.bound {
            Most(most) => value <= most,
            Least(least) => value >= least,
        })
    }
}

impl Bound {
    fn shown(self) -> String {
        match self {
            Most(most) => format!("at most {most}"),
            Least(least) => format!("at least {least}"),
        }
    }
}
