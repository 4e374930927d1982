//! Comparisons of `make bench`: a ratio is withheld if one of its services was overloaded.

#[path = "../../../benches/suite/comparison.rs"]
mod overload;

use overload::{ACHIEVED_MIN, Comparison, P50_MS_MAX, PacedService};

fn service(name: &str, p50_ms: f64, achieved: f64) -> Option<PacedService> {
    Some(PacedService { name: name.to_owned(), p50_ms, achieved })
}

/// The cell of a ratio, and the verdict of the target "at most 1.1". The last service is the reference.
fn texts(ratio: Option<f64>, services: &[Option<PacedService>]) -> [String; 2] {
    let (services, references) = services.split_at(services.len().saturating_sub(1));
    let comparison = Comparison::new(ratio, services.iter().cloned(), references.iter().cloned());
    [comparison.cell(|ratio| format!("{ratio:.2}")), comparison.verdict(|ratio| ratio <= 1.1)]
}

#[test]
fn ratios_of_overloaded_services_are_withheld() {
    let weir = || service("weir", 0.4, 100.0);
    let at_bounds = || service("peer", P50_MS_MAX, ACHIEVED_MIN);
    let table = [
        (Some(1.1), vec![], "1.10", ""),
        (Some(1.2), vec![], "1.20", "**missed**"),
        (None, vec![], "-", "**not measured**"),
        (Some(1.0), vec![weir(), at_bounds()], "1.00", ""),
        (Some(5.34), vec![weir(), at_bounds()], "5.34", "**missed**"),
        (
            Some(1.83),
            vec![weir(), service("peer", 3.8, 100.0)],
            "overloaded: peer",
            "not comparable: peer had a p50 of 3.8 ms and achieved 100.0 %",
        ),
        (
            Some(0.2),
            vec![weir(), service("peer", 0.4, 97.9)],
            "overloaded: peer",
            "not comparable: peer had a p50 of 0.4 ms and achieved 97.9 %",
        ),
        (
            Some(0.2),
            vec![service("weir", 20.0, 90.0), at_bounds()],
            "overloaded: weir",
            "**missed**: weir had a p50 of 20.0 ms and achieved 90.0 %",
        ),
        (
            Some(5.34),
            vec![service("weir", 20.0, 90.0), service("peer", 790.0, 61.24)],
            "overloaded: weir; peer",
            "not comparable: weir had a p50 of 20.0 ms and achieved 90.0 %; \
             peer had a p50 of 790.0 ms and achieved 61.2 %",
        ),
        // A service without figures may have been overloaded.
        (Some(1.0), vec![weir(), None], "-", "**not measured**"),
        (None, vec![service("peer", 790.0, 61.0)], "-", "**not measured**"),
    ];
    for (ratio, services, cell, verdict) in table {
        assert_eq!(texts(ratio, &services), [cell, verdict], "{ratio:?} {services:?}");
    }
}

/// A load without a single response has no latency and no share.
#[test]
fn services_without_numbers_are_overloaded() {
    for (p50_ms, achieved) in [(f64::NAN, 100.0), (0.4, f64::NAN), (f64::NAN, f64::NAN)] {
        let comparison = Comparison::new(Some(1.0), [], [service("peer", p50_ms, achieved)]);
        assert!(matches!(comparison, Comparison::Overloaded { .. }), "{p50_ms} {achieved}");
        assert_eq!(comparison.cell(|ratio| ratio.to_string()), "overloaded: peer");
    }
}
