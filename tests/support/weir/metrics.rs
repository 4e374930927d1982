//! The metrics of one scrape, and sums over their series.

use std::net::SocketAddr;

use crate::support::http::get;

/// The text of one scrape.
pub(crate) struct Metrics(String);

impl Metrics {
    /// Reads `/metrics` of the admin listener.
    pub(crate) fn scrape(admin: SocketAddr) -> Metrics {
        Metrics(get(admin, "/metrics").body)
    }

    /// The sum over all series of `name` that have every one of `labels`, written as in the text.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> u64 {
        self.values_of(name, labels).map(|value| value as u64).sum()
    }

    /// The largest of these series. It may be a fraction.
    pub(crate) fn largest(&self, name: &str, labels: &[&str]) -> f64 {
        self.values_of(name, labels).fold(f64::NEG_INFINITY, f64::max)
    }

    fn values_of(&self, name: &str, labels: &[&str]) -> impl Iterator<Item = f64> {
        assert!(self.0.contains(&format!("# TYPE {name} ")), "there is no {name}");
        let series = self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (of, value) = rest.rsplit_once(' ')?;
            let has_all = labels.iter().all(|label| of.contains(label));
            (of.is_empty() || of.starts_with('{') && has_all).then_some(value)
        });
        series.map(|value| value.parse().expect("a number"))
    }

    /// The upper bound of the slowest sample of all series of a histogram. It is infinite if the
    /// sample is in the last bucket.
    pub(crate) fn slowest(&self, histogram: &str) -> f64 {
        let bucket = format!("{histogram}_bucket{{");
        let buckets = self.0.lines().filter_map(|line| {
            let (labels, value) = line.strip_prefix(&bucket)?.rsplit_once(' ')?;
            let (_, bound) = labels.split_once("le=\"")?;
            let bound: f64 = bound.split('"').next()?.parse().ok()?;
            Some((bound, value.parse::<f64>().ok()?))
        });
        // Buckets are cumulative: one has samples if its value exceeds that of the bucket before.
        let (mut slowest, mut before) = (0.0_f64, 0.0);
        for (bound, value) in buckets {
            if value > before {
                slowest = slowest.max(bound);
            }
            before = if bound.is_infinite() { 0.0 } else { value };
        }
        slowest
    }

    /// The values of a label, of every series of `name` whose value is not 0.
    pub(crate) fn values(&self, name: &str, label: &str) -> Vec<String> {
        let counted = |line: &&str| line.starts_with(&format!("{name}{{")) && !line.ends_with(" 0");
        let value = |line: &str| {
            let (_, rest) = line.split_once(&format!("{label}=\""))?;
            rest.split('"').next().map(str::to_owned)
        };
        self.0.lines().filter(counted).filter_map(value).collect()
    }
}
