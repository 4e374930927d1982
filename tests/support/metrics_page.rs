//! A strict parser of Prometheus' text format, and the rules for names
//! (<https://prometheus.io/docs/practices/naming/>).

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A parsed page of metrics.
pub(crate) struct Page {
    /// Families in the order of the page.
    families: Vec<Family>,
}

struct Family {
    name: String,
    kind: String,
    help: String,
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Page {
    /// Parses a page. Panics at the first invalid line.
    pub(crate) fn read(text: &str) -> Page {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut families: Vec<Family> = Vec::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let help = line.strip_prefix("# HELP ").unwrap_or_else(|| panic!("not HELP: {line}"));
            let (name, help) = help.split_once(' ').expect("a help text");
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("a type");
            let (typed, kind) = kind.split_once(' ').expect("a kind");
            assert_eq!(typed, name, "HELP and TYPE of different metrics");
            let mut samples = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                samples.push(sample(line));
            }
            let (name, kind, help) = (name.to_owned(), kind.to_owned(), help.to_owned());
            families.push(Family { name, kind, help, samples });
        }
        Page { families }
    }

    /// The names of all families.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.families.iter().map(|family| family.name.clone()).collect()
    }

    /// The kind of a family.
    pub(crate) fn kind(&self, name: &str) -> Option<&str> {
        self.family(name).map(|family| family.kind.as_str())
    }

    /// Every label that a sample of a family has.
    pub(crate) fn labels(&self, name: &str) -> BTreeSet<String> {
        let samples = self.family(name).into_iter().flat_map(|family| &family.samples);
        samples.flat_map(|sample| sample.labels.keys().cloned()).collect()
    }

    /// The one sample of this name with exactly these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let exact = |sample: &&Sample| sample.labels.len() == labels.len() && sample.has(labels);
        self.samples(name).find(exact).map(|sample| sample.value)
    }

    /// All samples of this name with these labels among theirs.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples(name).filter(|sample| sample.has(labels)).map(|sample| sample.value).sum()
    }

    /// One family per name, one sample per set of labels, histograms whole.
    pub(crate) fn check(&self) {
        assert_eq!(self.names().len(), self.families.len(), "a family occurs twice");
        for Family { name, kind, help, samples } in &self.families {
            assert!(help.ends_with('.'), "{name}: help texts are sentences: {help}");
            let kinds = ["counter", "gauge", "histogram"];
            assert!(kinds.contains(&kind.as_str()), "{name} is a {kind}");
            let mut seen = HashSet::new();
            for sample in samples {
                assert!(seen.insert((&sample.name, &sample.labels)), "{name}: equal samples");
                assert!(sample.value.is_finite(), "{name}: {}", sample.value);
                let rest = sample.name.strip_prefix(name).expect("a sample of its family");
                let parts = ["_bucket", "_sum", "_count"];
                let fits =
                    if kind == "histogram" { parts.contains(&rest) } else { rest.is_empty() };
                assert!(fits, "{} in {name}", sample.name);
                for label in sample.labels.keys() {
                    assert!(is_name(label) && !label.contains(':'), "{name} has a label {label}");
                }
            }
            if kind == "histogram" {
                let mut series: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
                for sample in samples {
                    let mut labels = sample.labels.clone();
                    labels.remove("le");
                    series.entry(labels).or_default().push(sample);
                }
                series.values().for_each(|samples| histogram(name, samples));
            }
        }
    }

    /// Checks all names but those of envoyproxy/ratelimit, which are fixed.
    pub(crate) fn check_names_of_weir(&self) {
        for name in self.names().iter().filter(|name| !name.starts_with("ratelimit_")) {
            self.check_name(name);
        }
    }

    /// A metric of weir names what it counts and its unit. `promtool check metrics` has the same
    /// rules.
    fn check_name(&self, name: &str) {
        assert!(is_name(name) && !name.contains(':'), "{name} is not a valid name");
        let prefixes = ["weir_", "process_"];
        assert!(prefixes.iter().any(|prefix| name.starts_with(*prefix)), "the prefix of {name}");
        let kind = self.kind(name).expect("a family");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        if kind == "histogram" {
            assert!(name.ends_with("_seconds"), "{name} has no unit");
        }
        assert!(!name.contains(|c: char| c.is_ascii_uppercase()), "{name} is not in snake_case");
        for word in name.split('_') {
            let units = ["us", "microseconds", "ms", "milliseconds", "minutes", "kb", "mb"];
            assert!(!units.contains(&word), "{name}: {word} is not a base unit");
            let kinds = ["counter", "gauge", "histogram", "summary", "count", "sum", "bucket"];
            assert!(!kinds.contains(&word), "{name}: {word} is the kind or a part of a metric");
        }
        let labels = self.labels(name);
        assert!(!labels.contains("quantile"), "{name} has the label of summaries");
        assert!(kind == "histogram" || !labels.contains("le"), "{name} is a {kind}");
    }

    fn family(&self, name: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.name == name)
    }

    fn samples(&self, name: &str) -> impl Iterator<Item = &Sample> {
        let all = self.families.iter().flat_map(|family| &family.samples);
        all.filter(move |sample| sample.name == name)
    }
}

impl Sample {
    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(*name).is_some_and(|has| has == value))
    }
}

/// The buckets of one series are cumulative, and the last one has every sample.
fn histogram(name: &str, samples: &[&Sample]) {
    let buckets = samples.iter().filter(|sample| sample.name.ends_with("_bucket"));
    let mut below: (f64, f64) = (f64::NEG_INFINITY, 0.0);
    for bucket in buckets {
        let end: f64 = bucket.labels["le"].parse().expect("a number or +Inf");
        assert!(end > below.0 && bucket.value >= below.1, "{name}: buckets do not grow");
        below = (end, bucket.value);
    }
    assert_eq!(below.0, f64::INFINITY, "{name}: the last bucket is not +Inf");
    let count = samples.iter().find(|sample| sample.name.ends_with("_count")).expect("a count");
    assert_eq!(below.1, count.value, "{name}: the last bucket has every sample");
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.chars().all(fits) && !text.starts_with(|c: char| c.is_ascii_digit()) && !text.is_empty()
}

fn sample(line: &str) -> Sample {
    let wrong = format!("no sample: {line}");
    let end = line.find(['{', ' ']).expect(&wrong);
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect(&wrong);
            let (value, after) = quoted(after).expect(&wrong);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{label} twice: {line}");
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}').expect(&wrong);
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').and_then(|text| text.parse().ok());
    Sample { name: name.to_owned(), labels, value: value.unwrap_or_else(|| panic!("{line}")) }
}

/// The text up to the closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other @ ('\\' | '"') => other,
                _ => return None,
            }),
            _ => value.push(letter),
        }
    }
    None
}
