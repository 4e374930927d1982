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
        assert!(self.0.contains(&format!("# TYPE {name} ")), "there is no {name}");
        let series = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (of, value) = rest.rsplit_once(' ')?;
            let has_all = labels.iter().all(|label| of.contains(label));
            (of.is_empty() || of.starts_with('{') && has_all).then_some(value)
        });
        series.map(|value| value.parse::<f64>().expect("a number") as u64).sum()
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
