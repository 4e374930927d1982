//! The plans in Redis: how they are read, and their bounds.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::{PLANS_KEY, RedisPlans};
use crate::plans::{PLANS_MAX, PlanBook, PlanNumbers};
use crate::store::{CommandBound, RedisValue, StoreError};

/// The most bytes of all plans with their names, as Redis sends them.
pub(super) const BOOK_BYTES_MAX: usize = 8 << 20;

/// The most bytes of one plan as JSON.
pub(super) const PLAN_BYTES_MAX: usize = 64 << 10;

/// The bytes that the protocol adds to a plan, at most: two lengths, each on its line.
pub(super) const PLAN_OVERHEAD: usize = 32;

/// The size of the plans when they were last read.
#[derive(Debug, Default)]
pub(super) struct BookSize {
    bytes: AtomicUsize,
}

impl BookSize {
    /// The bytes of all plans with their names.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Why the plans were not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BookError {
    /// Redis did not answer. Another attempt may succeed.
    Store(StoreError),
    /// The plans are invalid: the reason.
    Invalid(String),
}

/// The plans, and a hash of them.
pub(super) struct ReadBook {
    pub(super) book: PlanBook,
    pub(super) digest: u64,
}

impl RedisPlans {
    /// Reads all plans.
    pub(super) async fn read_book(&self) -> Result<ReadBook, BookError> {
        let count = self.command(PLANS_KEY, &[b"HLEN".to_vec(), PLANS_KEY.into()]).await;
        let count = count.map_err(BookError::Store)?.integer().unwrap_or_default();
        if usize::try_from(count).is_ok_and(|count| count > PLANS_MAX) {
            let text = format!("{PLANS_KEY} has {count} plans, at most {PLANS_MAX}; delete some");
            return Err(BookError::Invalid(text));
        }
        // Elements: another instance may add plans meanwhile.
        let elements = 2 * PLANS_MAX + 1_000;
        let bound = CommandBound { bytes: BOOK_BYTES_MAX, elements, timeout: self.timeout };
        let words = [b"HGETALL".to_vec(), PLANS_KEY.into()];
        let reply = self.command_within(PLANS_KEY, &words, bound).await;
        let reply = reply.map_err(|error| match error {
            // A reply over its bound closes the connection.
            StoreError::ConnectionLost => BookError::Invalid(format!(
                "{PLANS_KEY}: {error}; or it has more than {BOOK_BYTES_MAX} bytes: delete plans"
            )),
            error => BookError::Store(error),
        })?;
        let fields = reply.list().unwrap_or_default();
        let size = fields.iter().map(bytes).sum::<usize>() + PLAN_OVERHEAD * fields.len() / 2;
        self.book.bytes.store(size, Ordering::Relaxed);
        parse(fields)
    }
}

fn bytes(value: &RedisValue) -> usize {
    match value {
        RedisValue::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

/// The plans in the fields of the hash: names and numbers by turns.
fn parse(fields: &[RedisValue]) -> Result<ReadBook, BookError> {
    let mut plans = Vec::new();
    for pair in fields.chunks_exact(2) {
        let (Some(name), Some(text)) = (pair[0].text(), pair[1].text()) else {
            let text = format!("{PLANS_KEY} has a name or a plan that is not UTF-8; delete it");
            return Err(BookError::Invalid(text));
        };
        plans.push((name, text));
    }
    // Redis has no order of fields.
    plans.sort_unstable();
    let mut hasher = DefaultHasher::new();
    plans.hash(&mut hasher);
    let mut numbers = Vec::with_capacity(plans.len());
    for (name, text) in plans {
        let json: Value = serde_json::from_str(text).map_err(|error| {
            BookError::Invalid(format!("{PLANS_KEY}: plan `{name}` is no JSON: {error}"))
        })?;
        let plan = PlanNumbers::from_json(name, &json);
        let plan = plan.map_err(|error| BookError::Invalid(format!("{PLANS_KEY}: {error}")))?;
        numbers.push((name.to_owned(), plan));
    }
    let book = PlanBook::new(numbers).map_err(BookError::Invalid)?;
    Ok(ReadBook { book, digest: hasher.finish() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> RedisValue {
        RedisValue::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn plans_are_read_in_any_order() {
        let [free, pro] = [("free", r#"{"calls": 100}"#), ("pro", r#"{"calls": "unlimited"}"#)];
        let read = |plans: &[(&str, &str)]| {
            let fields = plans.iter().flat_map(|(name, plan)| [text(name), text(plan)]);
            parse(&fields.collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{error:?}"))
        };
        let (one, other) = (read(&[free, pro]), read(&[pro, free]));
        assert_eq!((one.book.len(), one.digest), (2, other.digest));
        assert_ne!(read(&[free]).digest, one.digest);
        assert_eq!(read(&[]).book.len(), 0);
    }

    #[test]
    fn an_invalid_plan_is_named() {
        for (plan, problem) in [("", "plan `p`"), ("{", "plan `p`"), ("[]", "plan `p`")] {
            let error = parse(&[text("p"), text(plan)]).err();
            let Some(BookError::Invalid(error)) = error else { panic!("{plan}: {error:?}") };
            assert!(error.starts_with(PLANS_KEY) && error.contains(problem), "{plan}: {error}");
        }
        let binary = parse(&[text("p"), RedisValue::Bytes(vec![0xff])]).err();
        assert!(matches!(binary, Some(BookError::Invalid(_))));
    }
}
