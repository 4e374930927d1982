//! Figures by name, one value per round, and their medians.

use std::fmt::Write;

use anyhow::Context;

/// Figures in the order of their first measurement.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<(String, Vec<f64>)>);

impl Figures {
    /// Adds one round's value of `name`.
    pub(crate) fn add(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name.to_owned(), vec![value])),
        }
    }

    /// Keeps only this value of `name`.
    pub(crate) fn set(&mut self, name: &str, value: f64) {
        self.0.retain(|(known, _)| known != name);
        self.add(name, value);
    }

    /// Adds all values of `other`.
    pub(crate) fn join(&mut self, other: Figures) {
        for (name, values) in other.0 {
            values.into_iter().for_each(|value| self.add(&name, value));
        }
    }

    /// Adds all values of `other`, in place of those of the same name.
    pub(crate) fn replace(&mut self, other: Figures) {
        self.0.retain(|(known, _)| other.0.iter().all(|(name, _)| name != known));
        self.join(other);
    }

    /// The figures in the output of [`csv`](Figures::csv). Other lines are left out.
    ///
    /// # Errors
    /// A value that is no number.
    pub(crate) fn from_csv(text: &str) -> anyhow::Result<Figures> {
        let mut figures = Figures::default();
        for line in text.lines() {
            let Some((name, numbers)) = line.strip_prefix('"').and_then(|it| it.split_once("\","))
            else {
                continue;
            };
            let rounds = numbers.split_once(',').map_or("", |(_, rounds)| rounds);
            for value in rounds.split_whitespace() {
                figures.add(name, value.parse().with_context(|| line.to_owned())?);
            }
        }
        Ok(figures)
    }

    /// The median of `name`, if it was measured.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        let values = self.0.iter().find(|(known, _)| known == name);
        values.map(|(_, values)| median(&mut values.clone()))
    }

    /// The median over the rounds of `of` divided by `by` in the same round.
    pub(crate) fn ratio(&self, of: &str, by: &str) -> Option<f64> {
        let values = |name: &str| self.0.iter().find(|(known, _)| known == name);
        let ((_, of), (_, by)) = values(of).zip(values(by))?;
        let mut ratios: Vec<f64> = of.iter().zip(by).map(|(of, by)| of / by).collect();
        (!ratios.is_empty()).then(|| median(&mut ratios))
    }

    /// The number of values of `name`.
    pub(crate) fn rounds(&self, name: &str) -> usize {
        let values = self.0.iter().find(|(known, _)| known == name);
        values.map_or(0, |(_, values)| values.len())
    }

    /// The median of `of` divided by the median of `by`. For differences, of which some may be close to 0.
    pub(crate) fn ratio_of_medians(&self, of: &str, by: &str) -> Option<f64> {
        Some(self.get(of)? / self.get(by)?)
    }

    /// The number of rounds in which a figure of `names` is not above 0, and that of all rounds.
    pub(crate) fn not_positive(&self, names: [&str; 2]) -> (usize, usize) {
        let values = |name: &str| self.0.iter().find(|(known, _)| known == name);
        let Some(((_, of), (_, by))) = values(names[0]).zip(values(names[1])) else {
            return (0, 0);
        };
        let rounds = of.iter().zip(by);
        let is_not = |(of, by): &(&f64, &f64)| **of <= 0.0 || **by <= 0.0;
        (rounds.clone().filter(is_not).count(), rounds.count())
    }

    /// Every value, as comma-separated values.
    pub(crate) fn csv(&self) -> String {
        let mut text = "figure,median,rounds\n".to_owned();
        for (name, values) in &self.0 {
            let rounds: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
            let median = median(&mut values.clone());
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\"{name}\",{median:.4},{}", rounds.join(" "));
        }
        text
    }
}

/// The median of `values`; the mean of the two middle ones when their number is even.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
