//! A comparison of services under a fixed rate of calls.
//!
//! An overloaded service has a queue, and its costs and latencies are those of the queue. So a ratio to
//! them is withheld. If the reference keeps up, the target is missed.

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
    /// Some services were overloaded.
    Overloaded {
        /// The overloaded services, at least one.
        services: Vec<PacedService>,
        /// Whether no reference is one of them.
        reference_keeps_up: bool,
    },
    NotMeasured,
}

impl Comparison {
    /// The comparison of `services` with `references` that has this ratio. They are all that the ratio
    /// depends on. `None` is one without figures.
    pub(crate) fn new(
        ratio: Option<f64>,
        services: impl IntoIterator<Item = Option<PacedService>>,
        references: impl IntoIterator<Item = Option<PacedService>>,
    ) -> Comparison {
        let services: Option<Vec<PacedService>> = services.into_iter().collect();
        let references: Option<Vec<PacedService>> = references.into_iter().collect();
        let (Some(ratio), Some(mut services), Some(references)) = (ratio, services, references)
        else {
            return Comparison::NotMeasured;
        };
        let reference_keeps_up = !references.iter().any(PacedService::is_overloaded);
        services.extend(references);
        services.retain(PacedService::is_overloaded);
        if services.is_empty() {
            Comparison::Measured(ratio)
        } else {
            Comparison::Overloaded { services, reference_keeps_up }
        }
    }

    /// The text of a cell: the ratio by `show`, or why there is none.
    pub(crate) fn cell(&self, show: impl Fn(f64) -> String) -> String {
        match self {
            Comparison::Measured(ratio) => show(*ratio),
            Comparison::Overloaded { services, .. } => {
                let names: Vec<&str> = services.iter().map(|one| one.name.as_str()).collect();
                format!("overloaded: {}", names.join("; "))
            }
            Comparison::NotMeasured => "-".to_owned(),
        }
    }

    /// Whether the ratio keeps a target, for the last cell of its row.
    pub(crate) fn verdict(&self, is_kept: impl Fn(f64) -> bool) -> String {
        match self {
            Comparison::Measured(ratio) if is_kept(*ratio) => String::new(),
            Comparison::Measured(_) => "**missed**".to_owned(),
            Comparison::Overloaded { services, reference_keeps_up } => {
                let reason = |one: &PacedService| {
                    let PacedService { name, p50_ms, achieved } = one;
                    format!("{name} had a p50 of {p50_ms:.1} ms and achieved {achieved:.1} %")
                };
                let reasons: Vec<String> = services.iter().map(reason).collect();
                let verdict = if *reference_keeps_up { "**missed**" } else { "not comparable" };
                format!("{verdict}: {}", reasons.join("; "))
            }
            Comparison::NotMeasured => "**not measured**".to_owned(),
        }
    }
}
