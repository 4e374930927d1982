//! Follows the plans in Redis: reads the stream of changes in each interval, and everything after a gap.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::RedisPlans;
use super::book::BookError;
use super::changes::{
    CHANGES_KEY, ChangePage, MalformedStream, PAGE_BYTES_MAX, PlanChange, StreamPosition,
    last_command, page_command, read_last, read_page,
};
use crate::backoff::Backoff;
use crate::plan_sources::{FirstAttempt, random, regular_pause};
use crate::settings::PlansSettings;
use crate::store::{CommandBound, RedisValue, StoreError};
use crate::time::{Clock, Micros};

/// The pause between attempts at the start, while the nodes of Redis are being discovered.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause after failed attempts.
const FAILED_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Consecutive reads of the stream that lose the connection, after which a page counts as too large.
const LOST_MAX: u32 = 5;

/// The pause before invalid plans are read again.
const INVALID_PAUSE: Micros = Micros::from_secs(2);

/// The most pages of the stream per interval.
const PAGES_MAX: usize = 100;

/// The error after a loss of data.
const LOST: &str = "Redis has lost the plans, and the last ones stay; write them again, with \
                    `weir plans set` or as docs/guides/plans.md shows";

/// The state of the thread.
pub(super) struct Follower {
    source: Arc<RedisPlans>,
    interval: Duration,
    /// `None` before the plans were read for the first time.
    position: Option<StreamPosition>,
    /// The hash of the active plans.
    digest: Option<u64>,
    /// Why the plans in Redis are not active; `None` if they are.
    invalid: Option<String>,
    /// When invalid plans are read again.
    retry_at: Micros,
    /// Consecutive reads of the stream that lost the connection.
    lost: u32,
    backoff: Backoff,
}

impl Follower {
    /// A follower that has not read anything.
    pub(super) fn new(source: Arc<RedisPlans>, settings: &PlansSettings) -> Follower {
        let interval = settings.poll_interval;
        let (digest, invalid, retry_at) = (None, None, Micros::ZERO);
        let backoff = Backoff::new(interval, FAILED_PAUSE_MAX);
        Follower { source, interval, position: None, digest, invalid, retry_at, lost: 0, backoff }
    }

    /// Follows without end.
    pub(super) async fn run(mut self, first: FirstAttempt) {
        let source = self.source.clone();
        let length = u64::try_from(source.timeout.as_micros()).unwrap_or(u64::MAX);
        let deadline = source.clock.now().saturating_add(Micros(length));
        let mut result = self.poll().await;
        while result.is_err() && source.clock.now() < deadline {
            sleep(FIRST_PAUSE).await;
            result = self.poll().await;
        }
        loop {
            let now = source.clock.now();
            let pause = match &result {
                Ok(()) => {
                    source.status.succeeded(now);
                    self.backoff.reset();
                    regular_pause(self.interval, random())
                }
                Err(error) => {
                    source.status.failed(now, error);
                    // Invalid plans delay no change of a customer.
                    match &self.invalid {
                        Some(_) => regular_pause(self.interval, random()),
                        None => self.backoff.pause(random()),
                    }
                }
            };
            first.done();
            source.plans.free_retired();
            tokio::select! {
                () = sleep(pause) => {}
                () = source.written.notified() => {}
            }
            result = self.poll().await;
        }
    }

    /// Reads what is new.
    ///
    /// # Errors
    /// Why the plans may be out of date.
    async fn poll(&mut self) -> Result<(), String> {
        match self.position.clone() {
            None => self.resync().await?,
            Some(position) => self.follow(position).await?,
        }
        // A program may have corrected them without an entry in the stream.
        if self.invalid.is_some() && self.source.clock.now() >= self.retry_at {
            self.read_plans(false).await?;
        }
        self.invalid.clone().map_or(Ok(()), Err)
    }

    /// Applies the changes after `position`.
    async fn follow(&mut self, mut position: StreamPosition) -> Result<(), String> {
        let source = self.source.clone();
        for _ in 0..PAGES_MAX {
            let bound =
                CommandBound { bytes: PAGE_BYTES_MAX, ..CommandBound::small(source.timeout) };
            let page = page_command(&position);
            let reply = source.command_within(CHANGES_KEY, &page, bound).await;
            let page = match self.is_too_large(&reply) {
                true => None,
                false => {
                    let reply = reply.map_err(store_text)?;
                    read_page(&position, &reply).map_err(|MalformedStream| stream_text())?
                }
            };
            let Some(ChangePage { changes, position: next, is_full }) = page else {
                return self.resync().await;
            };
            // First the plans, which may be new, then their customers. If the plans are not read, the
            // page is read again.
            if changes.contains(&PlanChange::Plans) {
                self.read_plans(false).await?;
            }
            for change in &changes {
                if let PlanChange::Customer { customer, plan } = change {
                    source.plans.assign(customer, plan.as_deref());
                }
            }
            source.metrics.changes.fetch_add(changes.len() as u64, Ordering::Relaxed);
            self.position = Some(next.clone());
            position = next;
            if !is_full {
                break;
            }
        }
        Ok(())
    }

    /// Whether the page with this `reply` has too many bytes. Then the connection is lost each time.
    fn is_too_large(&mut self, reply: &Result<RedisValue, StoreError>) -> bool {
        let is_lost = matches!(reply, Err(StoreError::ConnectionLost));
        self.lost = if is_lost { self.lost + 1 } else { 0 };
        let is_too_large = self.lost >= LOST_MAX;
        if is_too_large {
            self.lost = 0;
        }
        is_too_large
    }

    /// Reads everything again, as of a position of the stream that is read first.
    async fn resync(&mut self) -> Result<(), String> {
        let source = self.source.clone();
        let reply = source.command(CHANGES_KEY, &last_command()).await.map_err(store_text)?;
        let last = read_last(&reply).map_err(|MalformedStream| stream_text())?;
        self.read_plans(last == StreamPosition::Empty).await?;
        // Counted before requests see the effect, so that who sees it finds it in the metrics.
        if self.position.replace(last).is_some() {
            source.metrics.resyncs.fetch_add(1, Ordering::Relaxed);
        }
        source.plans.forget_customers();
        Ok(())
    }

    /// Reads the plans, and activates them if they are valid and others than before. `is_stream_gone`:
    /// there is no stream, so plans that are missing too were lost with it.
    ///
    /// # Errors
    /// Why they were not read. Invalid plans are no error: customers are followed all the same.
    async fn read_plans(&mut self, is_stream_gone: bool) -> Result<(), String> {
        let source = self.source.clone();
        let read = match source.read_book().await {
            Ok(read) => read,
            Err(BookError::Store(error)) => return Err(store_text(error)),
            Err(BookError::Invalid(reason)) => {
                self.invalid = Some(reason);
                self.retry_at = source.clock.now().saturating_add(INVALID_PAUSE);
                return Ok(());
            }
        };
        let is_gone = is_stream_gone && read.book.is_empty();
        if is_gone && source.plans.status().plans > 0 {
            return Err(LOST.to_owned());
        }
        self.invalid = None;
        if self.digest != Some(read.digest) {
            self.digest = Some(read.digest);
            source.plans.publish_book(read.book);
            source.status.changed(source.clock.now());
        }
        Ok(())
    }
}

fn store_text(error: StoreError) -> String {
    error.to_string()
}

fn stream_text() -> String {
    format!(
        "{CHANGES_KEY} is no stream of changes; delete it, and write plans as docs/guides/plans.md \
         shows"
    )
}
