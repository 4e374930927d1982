//! What an Envoy was sent for its reports: each has an answer, and no message expires too early.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::assigned::Sent;
use super::tap::Report;

/// The interval of Envoy's reports, and the time after which one is answered.
const INTERVAL: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(1);
/// Time after which a report without any answer has none.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long an assignment between two reports is valid after the next report.
const SPARE: Duration = Duration::from_secs(1);
/// An assignment that arrives so soon after a report may have left weir before it. Then the answer replaces it.
const CROSSING: Duration = Duration::from_millis(100);

/// What the messages to an Envoy showed.
pub(super) struct Answers {
    /// Reports that needed an answer.
    pub(super) answered: usize,
    /// What is wrong, with the instant.
    pub(super) errors: Vec<(Instant, String)>,
}

/// The reports and the actions of a bucket, in order.
#[derive(Default)]
struct BucketMessages<'a> {
    reports: Vec<Instant>,
    actions: Vec<&'a Sent>,
}

/// Checks the messages of an Envoy, by bucket. An answer is valid for two report intervals, or abandons the
/// bucket. What is sent between two reports is valid until a second after the next one.
pub(super) fn check_answers(
    reports: &[Report],
    actions: &[Sent],
    needs_answer: impl Fn(Instant) -> bool,
) -> Answers {
    let mut buckets: BTreeMap<BTreeMap<String, String>, BucketMessages<'_>> = BTreeMap::new();
    for report in reports {
        let id = report.usage.bucket_id.clone().unwrap_or_default().bucket;
        buckets.entry(id.into_iter().collect()).or_default().reports.push(report.at);
    }
    for sent in actions {
        buckets.entry(sent.bucket.clone()).or_default().actions.push(sent);
    }
    let mut found = Answers { answered: 0, errors: Vec::new() };
    for (id, messages) in &buckets {
        let wrong = |(at, what): (Instant, String)| (at, format!("{what} of {id:?}"));
        found.errors.extend(messages.expire_early().map(wrong));
        for at in messages.reports.iter().copied() {
            let needed = needs_answer(at);
            found.answered += usize::from(needed);
            found.errors.extend(messages.wrong_answer(at, needed).map(wrong));
        }
    }
    found
}

impl BucketMessages<'_> {
    /// What is wrong with the answer to the report at `at`.
    fn wrong_answer(&self, at: Instant, needed: bool) -> Option<(Instant, String)> {
        let first = self.actions.partition_point(|sent| sent.at < at);
        let within = |time: Duration| {
            self.actions[first..].iter().take_while(move |sent| sent.at < at + time)
        };
        if needed && within(ANSWER_MAX).next().is_none() {
            return Some((at, "no answer to a report".to_owned()));
        }
        let is_abandoned = within(ANSWER).any(|sent| sent.assigned.is_none());
        let ttl = within(ANSWER).filter_map(|sent| Some(sent.assigned?.ttl)).max()?;
        (ttl < 2 * INTERVAL && !is_abandoned)
            .then(|| (at, format!("an answer for {ttl:?} to a report")))
    }

    /// How long the assignments after `sent` are valid that arrive in the time of an answer.
    fn answers_after(&self, sent: &Sent) -> impl Iterator<Item = Duration> {
        let later = self.actions.iter().filter(|other| other.at > sent.at);
        later
            .take_while(|other| other.at < sent.at + ANSWER)
            .filter_map(|other| Some(other.assigned?.ttl))
    }

    /// The assignments that expire before the report that was due next, or too soon after it.
    fn expire_early(&self) -> impl Iterator<Item = (Instant, String)> {
        self.actions.iter().filter_map(|sent| {
            let ttl = sent.assigned?.ttl;
            let reported = self.reports.partition_point(|report| *report <= sent.at);
            let Some(last) = reported.checked_sub(1) else {
                return Some((sent.at, "an assignment before any report".to_owned()));
            };
            let next = (self.reports[last] + INTERVAL).saturating_duration_since(sent.at);
            let is_short = |ttl: Duration| ttl < next + SPARE;
            let crosses = sent.at - self.reports[last] < CROSSING;
            let is_early =
                is_short(ttl) && !(crosses && self.answers_after(sent).any(|ttl| !is_short(ttl)));
            is_early.then(|| {
                (sent.at, format!("an assignment for {ttl:?}, {next:?} before the next report"))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::rate_limit_quota::v3 as rlqs;
    use rlqs::BucketId;
    use rlqs::rate_limit_quota_usage_reports::BucketQuotaUsage;

    use super::super::assigned::Assigned;
    use super::*;

    /// The errors of one report on the bucket `a`, and one action for `bucket`, `millis` after it.
    fn errors(bucket: &str, millis: u64, ttl: Option<u64>) -> Vec<String> {
        errors_of(&[(bucket, millis, ttl)])
    }

    /// The errors of one report on the bucket `a`, and these actions.
    fn errors_of(actions: &[(&str, u64, Option<u64>)]) -> Vec<String> {
        let at = Instant::now();
        let id = |value: &str| [("tenant".to_owned(), value.to_owned())];
        let bucket_id = Some(BucketId { bucket: id("a").into() });
        let report = Report { at, usage: BucketQuotaUsage { bucket_id, ..Default::default() } };
        let sent = |(bucket, millis, ttl): &(&str, u64, Option<u64>)| Sent {
            at: at + Duration::from_millis(*millis),
            bucket: id(bucket).into(),
            assigned: ttl.map(|ttl| Assigned {
                rate: 1.0,
                max_tokens: 1,
                ttl: Duration::from_secs(ttl),
            }),
        };
        let sent: Vec<Sent> = actions.iter().map(sent).collect();
        let found = check_answers(&[report], &sent, |_| true);
        assert_eq!(found.answered, 1);
        found.errors.into_iter().map(|(_, what)| what).collect()
    }

    #[test]
    fn an_assignment_may_cross_a_report() {
        let crossing = ("a", 4, Some(5));
        assert_eq!(errors_of(&[crossing, ("a", 300, Some(10))]), [""; 0]);
        let early = "an assignment for 5s";
        for actions in [vec![crossing], vec![("a", 500, Some(5)), ("a", 800, Some(10))]] {
            let errors = errors_of(&actions);
            assert!(errors.iter().any(|error| error.contains(early)), "{actions:?}: {errors:?}");
        }
        assert_eq!(errors_of(&[crossing, ("a", 1_100, Some(10))]).len(), 2, "too late");
    }

    #[test]
    fn each_report_needs_its_own_valid_answer() {
        assert_eq!(errors("a", 300, Some(10)), [""; 0]);
        assert_eq!(errors("a", 300, None), [""; 0], "abandoned");
        let table = [
            ("a", 300, Some(9), "an answer for 9s"),
            ("a", 300, Some(1), "an assignment for 1s"),
            ("a", 2_000, Some(10), "no answer"),
            ("b", 300, Some(10), "no answer"),
            ("b", 300, Some(10), "before any report"),
            // 3 s before the next report.
            ("a", 2_000, Some(3), "an assignment for 3s"),
        ];
        for (bucket, millis, ttl, expected) in table {
            let errors = errors(bucket, millis, ttl);
            assert!(errors.iter().any(|error| error.contains(expected)), "{expected}: {errors:?}");
        }
    }
}
