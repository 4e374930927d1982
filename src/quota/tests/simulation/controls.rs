//! Controls: each law finds a division that breaks it.

use super::instance::Division;
use super::schedule::{self, Theme};
use super::world::Fault;
use super::{SMALL, run};
use crate::time::Micros;

/// The first law finds a wrong division: the whole quota for every holder.
#[test]
fn a_wrong_division_breaks_the_first_law() {
    for seed in 0..2 {
        let figures = run(seed, Theme::Demand, SMALL, Division::Whole);
        assert!(figures.violations.contains_key("1 sum"), "{seed}: {:?}", figures.violations);
    }
}

/// The first law finds a missing grace: a share is given to another holder before its last one has the
/// message that lowers it.
#[test]
fn a_missing_grace_breaks_the_first_law() {
    let broken = (0..4).any(|seed| {
        let mut world = schedule::world(seed, Theme::Demand, SMALL, Division::Groups);
        world.setup.config.grace = Micros::ZERO;
        world.run(Micros::from_secs(SMALL.length));
        world.figures.violations.contains_key("1 sum")
    });
    assert!(broken);
}

/// Each exception has a bound that a further fault exceeds.
#[test]
fn faults_break_the_bounds_of_the_exceptions() {
    for (theme, fault, law) in [
        (Theme::CutOffRenewed, Fault::OwnLedger, "8 raised without a ledger"),
        (Theme::CutOffRenewed, Fault::OwnLedger, "1 sum"),
        (Theme::Flush, Fault::ForgottenView, "1 sum"),
        (Theme::SharedNames, Fault::KeptName, "9 one name"),
        (Theme::LocalCallers, Fault::WholeForLocal, "1 sum"),
    ] {
        let broken = (0..8).any(|seed| {
            let mut world = schedule::world(seed, theme, SMALL, Division::Groups);
            world.setup.fault = Some(fault);
            world.run(Micros::from_secs(SMALL.length));
            world.figures.violations.contains_key(law)
        });
        assert!(broken, "{theme:?} {fault:?} {law}");
    }
}
