//! Comparisons of `make bench`: a ratio decides nothing if one of its services was overloaded, and an overloaded
//! subject misses its target if the references kept up.

#[allow(dead_code, reason = "the suite uses the rest")]
#[path = "../../../benches/suite/comparison.rs"]
mod overload;

use overload::{ACHIEVED_MIN, Comparison, P50_MS_MAX, PacedService};

fn service(name: &str, p50_ms: f64, achieved: f64) -> Option<PacedService> {
    Some(PacedService { name: name.to_owned(), p50_ms, achieved })
}

/// The cell of a ratio, and the verdict of the target "at most 1.1".
fn texts(
    ratio: Option<f64>,
    subjects: &[Option<PacedService>],
    references: &[Option<PacedService>],
) -> [String; 2] {
    let comparison = Comparison::new(ratio, subjects.iter().cloned(), references.iter().cloned());
    [comparison.cell(|ratio| format!("{ratio:.2}")), comparison.verdict(|ratio| ratio <= 1.1)]
}

#[test]
fn ratios_of_overloaded_services_decide_nothing() {
    let weir = || service("weir", 0.4, 100.0);
    let slow = || service("weir", 20.0, 90.0);
    let at_bounds = || service("peer", P50_MS_MAX, ACHIEVED_MIN);
    let missed = "**missed**: weir had a p50 of 20.0 ms and achieved 90.0 %";
    let table = [
        (Some(1.1), vec![], vec![], "1.10", ""),
        (Some(1.2), vec![], vec![], "1.20", "**missed**"),
        (None, vec![], vec![], "-", "**not measured**"),
        (Some(1.0), vec![weir()], vec![at_bounds()], "1.00", ""),
        (Some(5.34), vec![weir()], vec![at_bounds()], "5.34", "**missed**"),
        (
            Some(1.83),
            vec![weir()],
            vec![service("peer", 3.8, 100.0)],
            "(1.83)",
            "not comparable: peer had a p50 of 3.8 ms and achieved 100.0 %",
        ),
        (
            Some(0.2),
            vec![weir()],
            vec![at_bounds(), service("second peer", 0.4, 97.9)],
            "(0.20)",
            "not comparable: second peer had a p50 of 0.4 ms and achieved 97.9 %",
        ),
        (
            Some(5.34),
            vec![slow()],
            vec![service("peer", 790.0, 61.24)],
            "(5.34)",
            "not comparable: weir had a p50 of 20.0 ms and achieved 90.0 %; \
             peer had a p50 of 790.0 ms and achieved 61.2 %",
        ),
        // The ratio is that of a queue, so the target is missed whatever it is.
        (Some(5.34), vec![slow()], vec![at_bounds()], "(5.34)", missed),
        (Some(0.2), vec![weir(), slow()], vec![at_bounds()], "(0.20)", missed),
        // A service without figures may have been overloaded.
        (Some(1.0), vec![weir()], vec![None], "-", "**not measured**"),
        (Some(1.0), vec![None], vec![at_bounds()], "-", "**not measured**"),
        (None, vec![weir()], vec![service("peer", 790.0, 61.0)], "-", "**not measured**"),
    ];
    for (ratio, subjects, references, cell, verdict) in table {
        let found = texts(ratio, &subjects, &references);
        assert_eq!(found, [cell, verdict], "{ratio:?} {subjects:?} {references:?}");
    }
}

/// A load without a single response has no latency and no share.
#[test]
fn services_without_numbers_are_overloaded() {
    for (p50_ms, achieved) in [(f64::NAN, 100.0), (0.4, f64::NAN), (f64::NAN, f64::NAN)] {
        let empty = service("empty", p50_ms, achieved);
        let fine = service("fine", 0.4, 100.0);
        for (subject, reference, verdict) in
            [(&empty, &fine, "**missed**: "), (&fine, &empty, "not comparable: ")]
        {
            let comparison = Comparison::new(Some(1.0), [subject.clone()], [reference.clone()]);
            assert_eq!(comparison.cell(|ratio| ratio.to_string()), "(1)");
            let found = comparison.verdict(|_| true);
            assert!(found.starts_with(verdict), "{p50_ms} {achieved}: {found}");
        }
    }
}
