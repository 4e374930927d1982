//! Plans from an HTTP server: asked for in each interval, by conditional requests.
//!
//! An answer has all plans and customers, as a plans file. An answer that fails, or whose content is
//! invalid, changes nothing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use serde::de::IgnoredAny;
use tokio::time::{sleep, timeout};

use super::{
    FirstAttempt, PlanSourceError, RunningSource, SourceStatus, joined, random, regular_pause,
};
use crate::backoff::Backoff;
use crate::plans::{CustomerPlans, PlanBook, Plans};
use crate::settings::PlansSettings;
use crate::time::{Clock, SystemClock};

mod client;
mod credentials;
mod endpoint;
mod failure;

use client::{FetchedPlans, PlansBody, PlansClient};
use failure::HttpFailure;

/// The longest pause after failed requests.
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// The error about an answer without plans.
const NO_PLANS: &str = "the answer of plans.url has no plans; send at least one";

/// Starts to read plans from `plans.url`, and waits for the first answer for at most `plans.timeout`.
///
/// # Errors
/// Invalid settings and files, and a thread that cannot start.
pub fn start_http(
    settings: &PlansSettings,
    plans: Arc<Plans>,
    clock: SystemClock,
) -> Result<RunningSource, PlanSourceError> {
    let client = PlansClient::new(settings)?;
    let status = Arc::new(SourceStatus::new("http"));
    let reader = HttpReader {
        client,
        plans,
        status: status.clone(),
        clock,
        max_customers: settings.max_customers,
        timeout: settings.timeout,
        interval: settings.poll_interval,
        backoff: Backoff::new(settings.poll_interval, BACKOFF_MAX),
        seen: None,
        active: None,
        invalid: None,
    };
    Ok(RunningSource::start(status, settings.timeout, move |first| reader.run(first))?)
}

/// Reads the files that `settings` name, as [`start_http`] does.
///
/// # Errors
/// Files that cannot be read or used, and an address that is none.
pub fn check_files(settings: &PlansSettings) -> Result<(), PlanSourceError> {
    PlansClient::new(settings)?.check_token().map_err(HttpFailure::into_setting)
}

/// The state of the thread.
struct HttpReader {
    client: PlansClient,
    plans: Arc<Plans>,
    status: Arc<SourceStatus>,
    clock: SystemClock,
    max_customers: usize,
    timeout: Duration,
    interval: Duration,
    backoff: Backoff,
    /// The last content, also of an invalid answer.
    seen: Option<SeenContent>,
    /// The hash of the content whose plans are active.
    active: Option<u64>,
    /// Why the last content is invalid; `None` if it is active.
    invalid: Option<String>,
}

/// What identifies the content of an answer.
struct SeenContent {
    etag: Option<HeaderValue>,
    digest: u64,
}

impl HttpReader {
    /// Reads without end.
    async fn run(mut self, first: FirstAttempt) {
        loop {
            let polled = self.poll().await;
            let now = self.clock.now();
            let pause = match polled.map(|()| self.invalid.as_deref()) {
                Ok(invalid) => {
                    match invalid {
                        None => self.status.succeeded(now),
                        Some(reason) => self.status.failed(now, reason),
                    }
                    // Invalid plans may be corrected at any time.
                    self.backoff.reset();
                    regular_pause(self.interval, random())
                }
                Err(error) => {
                    self.status.failed(now, &error.to_string());
                    self.backoff.pause(random())
                }
            };
            first.done();
            self.plans.free_retired();
            sleep(pause).await;
        }
    }

    /// Asks for the plans, and activates them if they are new and valid.
    async fn poll(&mut self) -> Result<(), HttpFailure> {
        let etag = self.seen.as_ref().and_then(|seen| seen.etag.clone());
        let late = |_| Err(HttpFailure::Late(self.timeout));
        let fetched = timeout(self.timeout, self.client.get(etag.as_ref())).await;
        if let FetchedPlans::Body(body) = fetched.unwrap_or_else(late)? {
            let mut hasher = DefaultHasher::new();
            body.bytes.hash(&mut hasher);
            let digest = hasher.finish();
            // A server without ETags sends the same content again.
            if self.active == Some(digest) {
                self.invalid = None;
            } else if self.seen.as_ref().is_none_or(|seen| seen.digest != digest) {
                self.invalid = self.activate(&body).err();
                if self.invalid.is_none() {
                    self.active = Some(digest);
                }
            }
            self.seen = Some(SeenContent { etag: body.etag, digest });
        }
        Ok(())
    }

    /// Publishes the plans and customers of an answer.
    ///
    /// # Errors
    /// Why they are invalid.
    fn activate(&self, body: &PlansBody) -> Result<(), String> {
        let (book, customers) = parse(body, self.max_customers)?;
        // A defect of the server must not remove all plans.
        if book.is_empty() {
            return Err(NO_PLANS.to_owned());
        }
        let mut table = self.plans.table(&book, customers.len());
        for (customer, plan) in &customers {
            table.add(customer, plan)?;
        }
        let table = table.finish();
        self.plans.publish(book, table);
        self.status.changed(self.clock.now());
        Ok(())
    }
}

/// The plans and the customers of an answer: JSON if it says so or is so, else YAML. While JSON is read,
/// at most `customers_max` customers are kept in memory. YAML is read as a tree, whose nodes the parser
/// bounds.
fn parse(body: &PlansBody, customers_max: usize) -> Result<(PlanBook, CustomerPlans), String> {
    let named = |error: String| format!("the answer of plans.url is invalid: {error}");
    let text = std::str::from_utf8(&body.bytes);
    let text = text.map_err(|_| named("it is not UTF-8".to_owned()))?;
    if body.is_json || is_json(text) {
        return PlanBook::parse_json_text_within(text, customers_max).map_err(named);
    }
    let read = PlanBook::parse_yaml_within(text, "plans.url", customers_max);
    read.map_err(|problems| named(joined(&problems)))
}

/// Whether `text` is a JSON object. It takes no memory. A map of YAML may also begin with a brace.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str, is_json: bool) -> PlansBody {
        PlansBody { bytes: text.as_bytes().to_vec(), is_json, etag: None }
    }

    /// The YAML parser would read a tree of all customers.
    #[test]
    fn json_without_its_type_is_not_read_as_yaml() {
        for json in [
            r#"{"plans": {"free": {"calls": 1}}, "customers": {"a": "free", "b": "free"}}"#,
            r#"{"plans": {"free": {"calls": 1}}, "customers": {"a": 1}}"#,
        ] {
            let error = parse(&body(json, true), 1).unwrap_err();
            assert_eq!(parse(&body(json, false), 1).unwrap_err(), error);
            assert!(error.contains("at line 1 column"), "of the JSON parser: {error}");
        }
    }

    #[test]
    fn plans_are_json_or_yaml() {
        let json = r#"{"plans": {"free": {"calls": 100}}, "customers": {"acme": "free"}}"#;
        let yaml = "plans:\n  free: { calls: 100 }\ncustomers:\n  acme: free\n";
        let flow = "{plans: {free: {calls: 100}}, customers: {acme: free}}";
        for body in [body(json, true), body(json, false), body(yaml, false), body(flow, false)] {
            let (book, customers) = parse(&body, 1).unwrap();
            assert_eq!(book.len(), 1);
            assert_eq!(customers, [("acme".to_owned(), "free".to_owned())]);
        }
    }

    #[test]
    fn content_that_is_none_is_refused() {
        let html = "<!doctype html><title>Log in</title>";
        for body in [body(html, false), body(html, true), body("", true), body("[]", true)] {
            let error = parse(&body, 1).err().unwrap();
            assert!(error.starts_with("the answer of plans.url is invalid: "), "{error}");
        }
        let binary = PlansBody { bytes: vec![0xff], is_json: true, etag: None };
        assert!(parse(&binary, 1).err().unwrap().ends_with("it is not UTF-8"));
    }

    /// The text ends within the first customer that is too many. So that is found before the rest is read.
    #[test]
    fn customers_are_bounded_while_they_are_read() {
        let json = r#"{"plans": {"free": {"calls": 1}}, "customers": {"a": "free", "b": "free""#;
        let error = parse(&body(json, true), 1).err().unwrap();
        assert!(error.contains("more than 1 customers (raise plans.max_customers)"), "{error}");
        let error = parse(&body(json, true), 2).err().unwrap();
        assert!(error.contains("EOF while parsing"), "{error}");
        let yaml = "plans: { free: { calls: 1 } }\ncustomers: { a: free, b: free, c: free }\n";
        let error = parse(&body(yaml, false), 2).err().unwrap();
        assert!(error.contains("more than 2 customers; raise plans.max_customers"), "{error}");
        assert_eq!(error.matches("more than").count(), 1, "{error}");
        for max in [3, 4] {
            assert_eq!(parse(&body(yaml, false), max).unwrap().1.len(), 3);
        }
        let whole = format!("{json}}}}}");
        assert_eq!(parse(&body(&whole, true), 2).unwrap().1.len(), 2);
        let error = parse(&body(&whole, false), 1).err().unwrap();
        assert!(error.contains("more than 1 customers"), "{error}");
        assert!(parse(&body(&format!("{whole} x"), true), 2).is_err(), "text after the end");
    }
}
