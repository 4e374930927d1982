//! A comparison of services under a fixed rate of calls.
//!
//! An overloaded service has a queue, and its costs and latencies are those of the queue. So a ratio with
//! them decides no target, and is shown in parentheses. If the references keep up, an overloaded subject misses
//! its target.
//!
//! A ratio of differences decides nothing either, if one of them is not above 0 in more than a third of the
//! rounds: it would be one of noise.

/// The median latency over which a service on loopback is overloaded, in milliseconds.
pub(crate) const P50_MS_MAX: f64 = 3.0;
/// The share of the offered calls below which a service is overloaded, in percent.
pub(crate) const ACHIEVED_MIN: f64 = 98.0;

/// A service under a fixed rate of calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PacedService {
    pub(crate) name: String,
    pub(crate) p50_ms: f64,
    /// The completed calls, in percent of those offered.
    pub(crate) achieved: f64,
}

impl PacedService {
    fn is_overloaded(&self) -> bool {
        let keeps_up = self.p50_ms <= P50_MS_MAX && self.achieved >= ACHIEVED_MIN;
        !keeps_up
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Comparison {
    Measured(f64),
    /// The services that were overloaded, at least one.
    Overloaded {
        ratio: f64,
        subjects: Vec<PacedService>,
        references: Vec<PacedService>,
    },
    /// A ratio of differences, which were not above 0 in this many rounds of all, more than a third. So the
    /// noise is as large as what is measured.
    Noise {
        ratio: f64,
        rounds: usize,
        all: usize,
    },
    NotMeasured,
}

impl Comparison {
    /// The comparison of subjects with references that has this ratio. They are all services that the
    /// ratio depends on, and `None` is one without figures.
    pub(crate) fn new(
        ratio: Option<f64>,
        subjects: impl IntoIterator<Item = Option<PacedService>>,
        references: impl IntoIterator<Item = Option<PacedService>>,
    ) -> Comparison {
        let subjects: Option<Vec<PacedService>> = subjects.into_iter().collect();
        let references: Option<Vec<PacedService>> = references.into_iter().collect();
        let (Some(ratio), Some(mut subjects), Some(mut references)) = (ratio, subjects, references)
        else {
            return Comparison::NotMeasured;
        };
        subjects.retain(PacedService::is_overloaded);
        references.retain(PacedService::is_overloaded);
        if subjects.is_empty() && references.is_empty() {
            Comparison::Measured(ratio)
        } else {
            Comparison::Overloaded { ratio, subjects, references }
        }
    }

    /// The same, unless the ratio is of differences that were not above 0 in this many rounds, more than a third
    /// of all.
    pub(crate) fn of_differences(self, (rounds, all): (usize, usize)) -> Comparison {
        match self {
            Comparison::Measured(ratio) if 3 * rounds > all => {
                Comparison::Noise { ratio, rounds, all }
            }
            other => other,
        }
    }

    /// The text of a cell: the ratio by `show`, in parentheses if it decides nothing.
    pub(crate) fn cell(&self, show: impl Fn(f64) -> String) -> String {
        match self {
            Comparison::Measured(ratio) => show(*ratio),
            Comparison::Overloaded { ratio, .. } | Comparison::Noise { ratio, .. } => {
                format!("({})", show(*ratio))
            }
            Comparison::NotMeasured => "-".to_owned(),
        }
    }

    /// Whether the ratio keeps a target, for the last cell of its row.
    pub(crate) fn verdict(&self, is_kept: impl Fn(f64) -> bool) -> String {
        match self {
            Comparison::Measured(ratio) if is_kept(*ratio) => String::new(),
            Comparison::Measured(_) => "**missed**".to_owned(),
            Comparison::Overloaded { subjects, references, .. } => {
                let verdict = if references.is_empty() { "**missed**" } else { "not comparable" };
                let reason = |one: &PacedService| {
                    let PacedService { name, p50_ms, achieved } = one;
                    format!("{name} had a p50 of {p50_ms:.1} ms and achieved {achieved:.1} %")
                };
                let reasons: Vec<String> = subjects.iter().chain(references).map(reason).collect();
                format!("{verdict}: {}", reasons.join("; "))
            }
            Comparison::Noise { rounds, all, .. } => {
                format!("not comparable: Envoy alone was as slow in {rounds} of {all} rounds")
            }
            Comparison::NotMeasured => "**not measured**".to_owned(),
        }
    }
}
