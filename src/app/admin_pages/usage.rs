//! Pages of usage: reads the names of the counters of a rule, and then the counters.
//!
//! One request reads at a time. With Redis, it sends a bounded number of commands, and its cursor says
//! where the next one continues.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{AdminPages, counter};
use crate::app::active_rules::RuleSnapshot;
use crate::changes::AppliedChange;
use crate::escape::excerpt;
use crate::key::CounterKey;
use crate::limit::Limit;
use crate::limiter::{Counter, Limiter};
use crate::rules::{Rule, RuleLimit, RuleSet};
use crate::store::StoreError;
use crate::time::{Clock, Micros, SystemClock};
use crate::usage::{
    CounterTexts, RowSelection, UsageAnswer, UsageCursor, UsageFailure, UsageFormat, UsagePage,
    UsageQuery, UsageRow, column_names, csv_header, csv_rows,
};

mod memory;
mod shared;

/// Most rules of one name that an error lists, and most characters of their selectors.
const SELECTORS_SHOWN: usize = 5;
const SELECTOR_CHARS_MAX: usize = 80;

/// Longest wait for the requests before.
const TURN_WAIT_MAX: Duration = Duration::from_secs(2);

/// What one page needs: the rule, the query, and the parts of the service that are read.
struct UsageReader {
    limiter: Arc<Limiter>,
    clock: SystemClock,
    active: Arc<RuleSnapshot>,
    /// The position of the rule in the active rules.
    rule: usize,
    columns: Vec<String>,
    query: UsageQuery,
    /// Where the page begins; `None` for the first one.
    cursor: Option<UsageCursor>,
    /// `usage.scan_pages`.
    scan_pages: usize,
}

/// The rows of a page.
struct UsageRows {
    rows: Vec<UsageRow>,
    names_read: u64,
    unreadable: u64,
    cursor: Option<UsageCursor>,
}

/// The page for `query`.
pub(super) async fn answer(
    pages: &AdminPages,
    query: UsageQuery,
) -> Result<UsageAnswer, UsageFailure> {
    let reader = Arc::new(UsageReader::new(pages, query)?);
    let Some(names) = reader.limiter.usage().cloned() else {
        return Err(UsageFailure::NotKept("this process keeps no names of counters".to_owned()));
    };
    let turn = timeout(TURN_WAIT_MAX, names.turn()).await.map_err(|_| {
        let why = "other requests to /usage read the counters; send the request again later";
        UsageFailure::Store(why.to_owned())
    })?;
    let rows = match reader.limiter.backend().shared_store() {
        Some(store) => shared::read(&reader, store).await?,
        None => {
            let reader = reader.clone();
            // It reads many counters without waiting, and this thread also accepts connections. The
            // task keeps its turn even if its client disconnects.
            blocking(move || {
                let _turn = turn;
                memory::read(&reader, &names)
            })
            .await??
        }
    };
    blocking(move || reader.render(rows)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, UsageFailure> {
    spawn_blocking(work).await.map_err(|error| UsageFailure::Store(error.to_string()))
}

impl UsageReader {
    /// Finds the rule of `query`, which must keep names, and reads the cursor.
    fn new(pages: &AdminPages, query: UsageQuery) -> Result<UsageReader, UsageFailure> {
        let active = pages.rules.snapshot_owned();
        let rule = rule_of(&active.rules, &query)?;
        let cursor = query.cursor.as_deref().filter(|text| !text.is_empty());
        let cursor = cursor.map(str::parse::<UsageCursor>).transpose();
        let cursor = cursor.map_err(|problem| UsageFailure::Invalid(problem.to_owned()))?;
        let (rule, columns) = (rule.index, column_names(rule));
        let (limiter, clock) = (pages.limiter.clone(), pages.clock);
        let scan_pages = pages.settings.usage.scan_pages;
        Ok(UsageReader { limiter, clock, active, rule, columns, query, cursor, scan_pages })
    }

    fn rule(&self) -> &Rule {
        &self.active.rules.rules()[self.rule]
    }

    fn selection(&self) -> RowSelection {
        let UsageQuery { order, limit, min_used, .. } = self.query;
        RowSelection::new(order, limit, min_used)
    }

    /// The state of a counter. `None` if its rule or its plan is unlimited.
    async fn row(
        &self,
        key: &CounterKey,
        texts: CounterTexts,
    ) -> Result<Option<UsageRow>, StoreError> {
        let now = self.clock.now();
        let Some(limit) = self.limit(key, &texts, now) else { return Ok(None) };
        let counter = Counter { rule: self.rule(), limit: &limit, key: *key };
        let tiers = self.limiter.inspect(&counter, now).await?;
        let name = counter::key_name(&self.limiter, key);
        Ok(Some(UsageRow::new(&self.columns, texts, name, &limit, &tiers, now)))
    }

    /// The limit of the counter with these texts, as at `/counters`. If the texts do not determine its
    /// descriptor, it is that of the rule, which a temporary change of the rule may change.
    fn limit(&self, key: &CounterKey, texts: &CounterTexts, local: Micros) -> Option<Limit> {
        let rule = self.rule();
        let RuleLimit::Limit(own) = &rule.limit else { return None };
        let entries = rule.counted_entries(&texts.texts).filter(|_| !texts.is_cut);
        let entries = entries.unwrap_or_default();
        let found = self.limiter.counter(&self.active.rules, &rule.domain, &entries).ok();
        // After a reload, another rule may match the descriptor.
        let found = found.filter(|found| found.key == *key);
        let plan = found.and_then(|found| self.limiter.plan_of(&found, &entries));
        let changes = self.limiter.changes();
        let active = changes.and_then(|all| Some((all.get()?, all.now(local))));
        let change = active
            .as_ref()
            .and_then(|(active, now)| active.of(Some(rule), &rule.domain, &entries, *now));
        let numbers = match change {
            Some(AppliedChange::Limit(numbers)) => Some(numbers),
            Some(AppliedChange::Block { .. } | AppliedChange::Bypass) | None => None,
        };
        counter::limit_of(own, plan.as_ref(), numbers).map(Cow::into_owned)
    }

    /// The page with `read`.
    fn render(&self, read: UsageRows) -> UsageAnswer {
        let rule = self.rule();
        let algorithm = match &rule.limit {
            RuleLimit::Limit(limit) => limit.algorithm.name(),
            RuleLimit::Unlimited => "unlimited",
        };
        let is_shared = self.limiter.backend().shared_store().is_some();
        let cursor = read.cursor.map(|cursor| cursor.to_string());
        let page = UsagePage {
            domain: rule.domain.to_string(),
            rule: rule.display_name.to_string(),
            selector: rule.other_selector(),
            algorithm: algorithm.to_owned(),
            store: if is_shared { "redis" } else { "memory" }.to_owned(),
            order: self.query.order,
            columns: self.columns.clone(),
            names_read: read.names_read,
            unreadable: read.unreadable,
            cursor: cursor.clone(),
            counters: read.rows,
        };
        let text = match self.query.format {
            UsageFormat::Json => {
                serde_json::to_string(&page).expect("texts and numbers have a JSON form")
            }
            UsageFormat::Csv => {
                // Later pages are appended to the first one.
                let header = self.cursor.is_none().then(|| csv_header(&page.columns));
                header.unwrap_or_default() + &csv_rows(&page, &page.counters)
            }
        };
        UsageAnswer { text, cursor }
    }
}

/// A selector in an error.
fn quoted(selector: &str) -> String {
    format!("`{}`", excerpt(selector, SELECTOR_CHARS_MAX))
}

/// The rule of `query`.
fn rule_of<'r>(rules: &'r RuleSet, query: &UsageQuery) -> Result<&'r Rule, UsageFailure> {
    let UsageQuery { domain, rule: name, .. } = query;
    if !rules.has_domain(domain) {
        let why = "neither a file nor xDS defines this domain; /rules lists the domains";
        return Err(UsageFailure::NoRule(why.to_owned()));
    }
    let named = rules.rules_named(domain, name);
    let rule = match named[..] {
        [rule] => rule,
        [] => {
            let why = "no rule of the domain has this name or selector; write the label `rule` of \
                       its metrics, or POST a descriptor to /explain";
            return Err(UsageFailure::NoRule(why.to_owned()));
        }
        _ => {
            let first = named.iter().take(SELECTORS_SHOWN);
            let first: Vec<String> = first.map(|rule| quoted(&rule.selector())).collect();
            let why = format!(
                "this is the name of several rules; write the selector of one: {}",
                first.join(", ")
            );
            return Err(UsageFailure::Invalid(why));
        }
    };
    if rule.limit == RuleLimit::Unlimited {
        let why = "the rule is unlimited, so nothing is counted";
        return Err(UsageFailure::NotKept(why.to_owned()));
    }
    if !rule.usage {
        let why = format!(
            "the rule at {} keeps no names of its counters; write `usage: true` in its \
             `rate_limit`, or in an overlay",
            rule.location
        );
        return Err(UsageFailure::NotKept(why));
    }
    Ok(rule)
}

/// The failure of a page whose cursor is that of the other store.
fn other_store() -> UsageFailure {
    let why = "the cursor is of another store; send the request again without a cursor";
    UsageFailure::Invalid(why.to_owned())
}

fn store_failed(error: StoreError) -> UsageFailure {
    UsageFailure::Store(error.to_string())
}
