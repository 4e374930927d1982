//! A page of metrics: families of samples, built once per reader and written in its format.
//!
//! Every registry writes itself onto a page with a function `expose`. Names start with `weir_`, end
//! in their unit (`_seconds`, `_bytes`) and, when they only ever grow, in `_total`.

use std::borrow::Cow;

use crate::histogram::Distribution;

mod text;

/// All metrics at one moment.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<Family>,
}

/// Samples of one name, told apart by their labels.
#[derive(Debug)]
pub struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) samples: Vec<Sample>,
}

/// What the numbers of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They only grow, from the start of the process.
    Counter,
    /// They come and go.
    Gauge,
    /// How many observations were at most how large.
    Histogram,
}

/// One measurement.
#[derive(Debug)]
pub struct Sample {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: Value,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Decimal(f64),
    /// A distribution.
    Histogram(Distribution),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Whole(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Decimal(number)
    }
}

impl From<Distribution> for Value {
    fn from(distribution: Distribution) -> Value {
        Value::Histogram(distribution)
    }
}

impl Exposition {
    /// Starts a family of what only grows. `name` ends in `_total`.
    pub fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.start(name, Kind::Counter, help)
    }

    /// Starts a family of what comes and goes.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.start(name, Kind::Gauge, help)
    }

    /// Starts a family of distributions. `name` ends in their unit.
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.start(name, Kind::Histogram, help)
    }

    fn start(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Family {
        self.families.push(Family { name, kind, help, samples: Vec::new() });
        self.families.last_mut().expect("it was just pushed")
    }

    /// The page in Prometheus' text format.
    pub fn to_prometheus(&self) -> String {
        text::write(&self.families)
    }

    /// What is on the page.
    pub fn families(&self) -> &[Family] {
        &self.families
    }
}

impl Family {
    /// Adds the sample with these labels.
    pub fn sample(
        &mut self,
        labels: &[(&'static str, &str)],
        value: impl Into<Value>,
    ) -> &mut Self {
        let labels = labels.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        self.samples.push(Sample { labels, value: value.into() });
        self
    }

    /// Adds the sample without labels.
    pub fn single(&mut self, value: impl Into<Value>) -> &mut Self {
        self.sample(&[], value)
    }
}

/// A text that fits a label, cut at `bytes` (rounded down to a whole character).
pub(super) fn cut(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Cow::Owned(format!("{}...", &text[..end]))
}
