//! A page of usage: counters with their names and their numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counter_texts::CounterTexts;
use super::query::UsageOrder;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::rules::{CountedLabel, Rule};
use crate::time::Micros;

/// A page: counters of one rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsagePage {
    /// The domain.
    pub domain: String,
    /// The rule name.
    pub rule: String,
    /// The selector of the rule, if the rule name is another text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The algorithm of the rule.
    pub algorithm: String,
    /// Where the counters are: `memory` or `redis`.
    pub store: String,
    /// The order of the rows.
    pub order: UsageOrder,
    /// The names in `values` of a row, in the order of the rule.
    pub columns: Vec<String>,
    /// Names that were read for this page.
    pub names_read: u64,
    /// Members beside the names that this version of weir has not written. They are left out.
    #[serde(default)]
    pub unreadable: u64,
    /// The cursor of the next page; `None` after the last one.
    pub cursor: Option<String>,
    /// The rows.
    pub counters: Vec<UsageRow>,
}

/// One counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The texts by which the counter differs from others of its rule, by column. Without those that were
    /// cut away.
    pub values: BTreeMap<String, String>,
    /// Whether the texts were cut, because they are longer than 1 KiB.
    pub cut: bool,
    /// The used share of its fullest tier, from 0 to 1.
    pub share: f64,
    /// Its tiers, in the order of the rule.
    pub tiers: Vec<UsageTier>,
    /// The name of the counter in the store.
    pub counter: String,
}

/// One tier of a counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsageTier {
    /// The limit.
    pub requests: u64,
    /// Hits on the counter, including those over the limit if they count.
    pub used: u64,
    /// Hits that the tier still allows.
    pub remaining: u64,
    /// Seconds of the window; by the calendar, those of the current window.
    pub window_seconds: f64,
    /// Seconds until more hits remain, or until the window ends.
    pub reset_after_seconds: f64,
}

impl UsageRow {
    /// The row of a counter of `limit` with these texts, named `counter` in the store. `tiers` are its
    /// decisions about 0 hits at `now`.
    pub fn new(
        columns: &[String],
        texts: CounterTexts,
        counter: String,
        limit: &Limit,
        tiers: &[Decision],
        now: Micros,
    ) -> UsageRow {
        let CounterTexts { texts, is_cut } = texts;
        UsageRow {
            values: columns.iter().cloned().zip(texts).collect(),
            cut: is_cut,
            share: tiers.iter().map(share).fold(0.0, f64::max),
            tiers: tiers.iter().map(|decision| UsageTier::new(limit, decision, now)).collect(),
            counter,
        }
    }

    /// The used hits of the tier with the most.
    pub fn used(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.used).max().unwrap_or_default()
    }
}

impl UsageTier {
    fn new(limit: &Limit, decision: &Decision, now: Micros) -> UsageTier {
        let window = limit.tiers.get(decision.tier).map_or(Micros::ZERO, |tier| {
            tier.calendar.map_or(tier.window, |calendar| {
                let (start, end) = calendar.window_at(now);
                end.saturating_sub(start)
            })
        });
        UsageTier {
            requests: decision.limit,
            used: decision.used,
            remaining: decision.remaining,
            window_seconds: window.0 as f64 / 1e6,
            reset_after_seconds: decision.reset_after.0 as f64 / 1e6,
        }
    }
}

/// The used share of a tier. A tier with nothing left is full, also one whose limit is 0.
fn share(decision: &Decision) -> f64 {
    if decision.remaining == 0 {
        return 1.0;
    }
    // A bucket has room for its burst, not only for its requests.
    decision.used as f64 / (decision.used as f64 + decision.remaining as f64)
}

/// The columns of a rule: the keys of its entries, or keys with variables. Each name is there once.
pub fn column_names(rule: &Rule) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for CountedLabel { key, variable } in rule.counted_labels() {
        let name = match variable {
            Some(variable) => format!("{key}.{variable}"),
            None => key.to_owned(),
        };
        let numbered = (2..).map(|number| format!("{name}#{number}"));
        let mut candidates = std::iter::once(name.clone()).chain(numbered);
        names.extend(candidates.find(|name| !names.contains(name)));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, Calendar, Period, Tier, WindowStart, Zone};

    fn decision(tier: usize, used: u64, remaining: u64) -> Decision {
        let reset_after = Micros(1_500_000);
        Decision { allowed: true, tier, limit: 10, remaining, used, reset_after }
    }

    fn row(texts: &[&str], tiers: &[Decision]) -> UsageRow {
        let tier = Tier { requests: 10, window: Micros::from_secs(60), burst: 10, calendar: None };
        let tiers_of = vec![tier; tiers.len()].into();
        let limit =
            Limit { algorithm: Algorithm::FixedWindow, tiers: tiers_of, count_denied: false };
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let texts = CounterTexts { texts, is_cut: false };
        let columns = ["user", "path.id"].map(str::to_owned);
        UsageRow::new(&columns, texts, "weir:{x}".to_owned(), &limit, tiers, Micros::ZERO)
    }

    #[test]
    fn the_share_is_that_of_the_fullest_tier() {
        for (tiers, share, used) in [
            (&[decision(0, 0, 10)][..], 0.0, 0),
            (&[decision(0, 3, 1)], 0.75, 3),
            (&[decision(0, 3, 1), decision(1, 40, 60)], 0.75, 40),
            (&[decision(0, 0, 0)], 1.0, 0),
            (&[decision(0, 25, 0)], 1.0, 25),
            (&[decision(0, (1 << 53) - 1, 0)], 1.0, (1 << 53) - 1),
        ] {
            let row = row(&["ann", "7"], tiers);
            assert_eq!((row.share, row.used(), row.tiers.len()), (share, used, tiers.len()));
        }
    }

    /// The window is the current one, and not the 30 days that stand for a month.
    #[test]
    fn a_month_has_its_own_length() {
        let starts = WindowStart { month: 1, day: 1, weekday: 1, hour: 0 };
        let calendar = Calendar { period: Period::Month, zone: Zone::UTC, starts };
        let tier =
            Tier { requests: 10, window: calendar.nominal(), burst: 10, calendar: Some(calendar) };
        let tiers = Box::from([tier]);
        let limit = Limit { algorithm: Algorithm::FixedWindow, tiers, count_denied: false };
        for (day, days) in [(0, 31.0), (31, 28.0), (59, 31.0), (90, 30.0)] {
            let now = Micros::from_secs(86_400 * day);
            let shown = UsageTier::new(&limit, &decision(0, 1, 9), now);
            assert_eq!(shown.window_seconds, 86_400.0 * days, "day {day} of 1970");
        }
    }

    #[test]
    fn a_page_comes_back_from_its_json() {
        let rows = vec![row(&["a\"\n", "7"], &[decision(0, 3, 7)]), row(&["b"], &[])];
        assert_eq!(rows[1].values.len(), 1, "the other text was cut away");
        let page = UsagePage {
            domain: "d".into(),
            rule: "user".into(),
            selector: None,
            algorithm: "fixed_window".into(),
            store: "redis".into(),
            order: UsageOrder::Name,
            columns: vec!["user".into(), "path.id".into()],
            names_read: 2,
            unreadable: 1,
            cursor: Some("r00".into()),
            counters: rows,
        };
        let text = serde_json::to_string(&page).expect("JSON");
        assert!(text.contains(r#""window_seconds":60.0,"reset_after_seconds":1.5"#), "{text}");
        let back: UsagePage = serde_json::from_str(&text).expect("the page");
        assert_eq!(back, page);
    }
}
