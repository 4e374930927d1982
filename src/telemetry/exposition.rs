//! A page of metrics: families of samples, for Prometheus and for OTLP.
//!
//! A registry writes its metrics onto a page with a function `expose`. Names start with `weir_` and end
//! in their unit (`_seconds`, `_bytes`); names of counters end in `_total`.

use std::borrow::Cow;

use crate::histogram::Distribution;

mod text;

/// The values of all metrics at one moment.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<Family>,
}

/// Samples of one name with different labels.
#[derive(Debug)]
pub struct Family {
    pub(super) name: Cow<'static, str>,
    pub(super) kind: FamilyKind,
    pub(super) help: &'static str,
    pub(super) samples: Vec<Sample>,
}

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// A value that only grows, from the start of the process.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// A distribution of observations.
    Histogram,
}

/// One measurement.
#[derive(Debug)]
pub struct Sample {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: SampleValue,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// An integer.
    Whole(u64),
    /// A decimal number.
    Decimal(f64),
    /// A distribution.
    Histogram(Distribution),
}

impl From<u64> for SampleValue {
    fn from(number: u64) -> SampleValue {
        SampleValue::Whole(number)
    }
}

impl From<f64> for SampleValue {
    fn from(number: f64) -> SampleValue {
        SampleValue::Decimal(number)
    }
}

impl From<Distribution> for SampleValue {
    fn from(distribution: Distribution) -> SampleValue {
        SampleValue::Histogram(distribution)
    }
}

impl Exposition {
    /// Starts a family of counters. `name` ends in `_total`.
    pub fn counter(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        help: &'static str,
    ) -> &mut Family {
        self.start(name.into(), FamilyKind::Counter, help)
    }

    /// Starts a family of gauges.
    pub fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.start(name.into(), FamilyKind::Gauge, help)
    }

    /// Starts a family of histograms. `name` ends in the unit.
    pub fn histogram(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.start(name.into(), FamilyKind::Histogram, help)
    }

    fn start(
        &mut self,
        name: Cow<'static, str>,
        kind: FamilyKind,
        help: &'static str,
    ) -> &mut Family {
        self.families.push(Family { name, kind, help, samples: Vec::new() });
        self.families.last_mut().expect("it was just pushed")
    }

    /// The page in Prometheus' text format.
    pub fn to_prometheus(&self) -> String {
        text::write(&self.families)
    }

    /// The families, in the order in which they were added.
    pub fn families(&self) -> &[Family] {
        &self.families
    }
}

impl Family {
    /// Adds the sample with these labels.
    pub fn sample(
        &mut self,
        labels: &[(&'static str, &str)],
        value: impl Into<SampleValue>,
    ) -> &mut Self {
        let labels = labels.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        self.samples.push(Sample { labels, value: value.into() });
        self
    }

    /// Adds the sample without labels.
    pub fn single(&mut self, value: impl Into<SampleValue>) -> &mut Self {
        self.sample(&[], value)
    }
}

/// `text` cut to at most `bytes`, at a character boundary, with `...` if something is missing.
pub(super) fn cut(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Cow::Owned(format!("{}...", &text[..end]))
}
