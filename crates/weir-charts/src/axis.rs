//! An axis: linear or logarithmic, with labels at chosen values.

use std::ops::Range;

use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

/// A ratio of the largest and the smallest value that needs a logarithmic axis.
const LOG_RATIO: f64 = 20.0;

/// An axis of a chart.
pub(crate) struct Axis {
    scale: Scale,
    /// The values with a label and a line.
    ticks: Vec<f64>,
}

enum Scale {
    Linear(RangedCoordf64),
    Log(LogCoord<f64>),
}

impl Axis {
    /// An axis from 0.
    pub(crate) fn linear(end: f64, ticks: Vec<f64>) -> Axis {
        Axis { scale: Scale::Linear((0.0..end).into()), ticks }
    }

    /// A logarithmic axis.
    pub(crate) fn log(range: Range<f64>, ticks: Vec<f64>) -> Axis {
        Axis { scale: Scale::Log(range.log_scale().into()), ticks }
    }

    /// A logarithmic axis with labels at round values. `None` if a value is 0.
    pub(crate) fn log_of(values: &[f64]) -> Option<Axis> {
        let (low, high) = bounds(values);
        if low <= 0.0 {
            return None;
        }
        let mut ticks = round_between(low, high);
        if ticks.len() == 1 {
            // Equal values, which are round.
            ticks.push(at_least(1.5 * high));
        }
        Some(Axis::log(ticks[0]..ticks[ticks.len() - 1], ticks))
    }

    /// An axis for values of at least 0, with labels at round values. It is logarithmic if their range asks
    /// for it, which a value of 0 rules out.
    pub(crate) fn of(values: &[f64]) -> Axis {
        let (low, high) = bounds(values);
        if !(high / 10.0).is_normal() {
            // All values are 0, or so near to it that no power of 10 is a step.
            return Axis::linear(1.0, vec![0.0, 1.0]);
        }
        if let Some(axis) = Axis::log_of(values).filter(|_| high / low >= LOG_RATIO) {
            return axis;
        }
        let step = at_least(high / 5.0);
        let steps = (high / step).ceil() as u32;
        let ticks = (0..=steps).map(|tick| f64::from(tick) * step).collect();
        Axis::linear(f64::from(steps) * step, ticks)
    }
}

/// The smallest and the largest value.
fn bounds(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (low, values.iter().copied().fold(f64::MIN_POSITIVE, f64::max))
}

/// The smallest of 1, 2, 5, 10, ... that is at least `value`.
fn at_least(value: f64) -> f64 {
    let unit = 10_f64.powi(value.log10().floor() as i32);
    let steps = [1.0, 2.0, 5.0].map(|step| step * unit);
    steps.into_iter().find(|step| *step >= value).unwrap_or(10.0 * unit)
}

/// The values of 1, 2, 5, 10, ... from the last one that is at most `low` to the first one that is at
/// least `high`.
fn round_between(low: f64, high: f64) -> Vec<f64> {
    let (mut ticks, mut decade) = (Vec::new(), low.log10().floor() as i32);
    let end = at_least(high);
    while ticks.last().is_none_or(|last| *last < end) {
        let unit = 10_f64.powi(decade);
        ticks.extend([1.0, 2.0, 5.0].map(|step| step * unit));
        decade += 1;
    }
    let first = ticks.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    ticks.retain(|tick| *tick <= end);
    ticks.split_off(first)
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match &self.scale {
            Scale::Linear(scale) => scale.map(value, limit),
            Scale::Log(scale) => scale.map(value, limit),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // The other points are lines without labels.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        match &self.scale {
            Scale::Linear(scale) => scale.range(),
            Scale::Log(scale) => scale.range(),
        }
    }
}

#[test]
fn ticks_enclose_the_values() {
    let ticks = |values: &[f64]| Axis::of(values).ticks;
    assert_eq!(ticks(&[61.9, 2900.2]), [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0]);
    assert_eq!(ticks(&[50.0, 1000.0]), [50.0, 100.0, 200.0, 500.0, 1000.0]);
    assert_eq!(ticks(&[0.0, 14.0]), [0.0, 5.0, 10.0, 15.0]);
    for zero in [0.0, f64::MIN_POSITIVE, 1e-310] {
        assert_eq!(ticks(&[0.0, zero]), [0.0, 1.0], "{zero}");
    }
    assert_eq!(Axis::of(&[0.0, 0.0]).map(&0.5, (0, 200)), 100);
    let log = |values: &[f64]| Axis::log_of(values).map(|axis| axis.ticks);
    assert_eq!(log(&[300.0, 700.0]), Some(vec![200.0, 500.0, 1000.0]));
    assert_eq!(log(&[200.0]), Some(vec![200.0, 500.0]));
    assert_eq!(log(&[0.0, 700.0]), None);
    assert_eq!(ticks(&[3.0, 50.0]), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
    assert_eq!(Axis::of(&[1.0, 100.0]).map(&10.0, (0, 200)), 100);
    assert_eq!(Axis::of(&[0.0, 100.0]).map(&10.0, (0, 200)), 20);
}
