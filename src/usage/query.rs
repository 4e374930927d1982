//! A request for a page of usage, and its answers.

use serde::{Deserialize, Serialize};

/// The most rows of a page.
pub const ROWS_MAX: usize = 1000;

/// A request for a page: the counters of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageQuery {
    /// The domain of the rule.
    pub domain: String,
    /// The name or the selector of the rule.
    pub rule: String,
    /// Which counters the page has, and their order.
    #[serde(default)]
    pub order: UsageOrder,
    /// The most rows, from 1 to [`ROWS_MAX`].
    #[serde(default = "default_limit")]
    pub limit: usize,
    /// The cursor of the page before; `None` or empty for the first page.
    #[serde(default)]
    pub cursor: Option<String>,
    /// The form of the page.
    #[serde(default)]
    pub format: UsageFormat,
    /// The fewest used hits of a counter on the page.
    #[serde(default = "default_min_used")]
    pub min_used: u64,
}

fn default_limit() -> usize {
    100
}

fn default_min_used() -> u64 {
    1
}

/// Which counters a page has, and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageOrder {
    /// The counters nearest their limit, of all that the request reads.
    #[default]
    Nearest,
    /// The next counters, sorted by name. All pages together have all counters.
    Name,
}

/// The form of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageFormat {
    /// One JSON object.
    #[default]
    Json,
    /// Lines of RFC 4180.
    Csv,
}

/// A page as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageAnswer {
    /// The page, in the form of the query.
    pub text: String,
    /// The cursor of the next page; `None` after the last one.
    pub cursor: Option<String>,
}

/// Why there is no page. Each text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageFailure {
    /// The query is invalid.
    Invalid(String),
    /// There is no such rule.
    NoRule(String),
    /// The rule keeps no names of counters.
    NotKept(String),
    /// The store failed.
    Store(String),
}
