//! The record of a decided request: one line of the decision log, in JSON.
//!
//! [`DecisionRecord`] is written after a decision. [`RecordedRequest`] is the part of a line that is
//! needed to decide the request again. `docs/guides/decision-log.md` has the format.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::decision::{Code, Status, Verdict};
use crate::descriptor::{Descriptor, Entry, LEASE_KEY, Request};
use crate::key::{KeyBuilder, KeySeed};
use crate::limit::{Cost, Override};
use crate::rules::{Rule, RuleSet};
use crate::time::Micros;

/// Longest line in bytes, with its newline. A longer record is not written, and a reader may reject a
/// longer line.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A decided request, as a line of the decision log has it. No field is `null`.
#[derive(Debug, Serialize)]
pub struct DecisionRecord<'a> {
    /// The instant as of which the request was decided, by the local clock: microseconds since the
    /// epoch.
    pub at: u64,
    /// The domain.
    pub domain: &'a str,
    /// The request's `hits_addend`, as sent.
    pub hits: u32,
    /// The descriptors, in the request's order.
    pub descriptors: Vec<DescriptorRecord<'a>>,
    /// The code of the response.
    pub code: Code,
    /// The id of the caller's trace: 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'a str>,
}

/// A decided descriptor of a [`DecisionRecord`].
#[derive(Debug, Serialize)]
pub struct DescriptorRecord<'a> {
    /// The keys and values. A value may be hashed.
    pub entries: Vec<(&'a str, Cow<'a, str>)>,
    /// The descriptor's own `hits_addend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Whether the hits are given back.
    #[serde(skip_serializing_if = "is_false")]
    pub negative: bool,
    /// The limit that the proxy sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Override>,
    /// The code of the descriptor alone.
    pub code: Code,
    /// The rule name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'a str>,
    /// The reason for the code in one word.
    pub reason: &'static str,
    /// Hits that the reported limit still allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// The id of the lease under which the hits were taken. It may be hashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Cow<'a, str>>,
    /// The code that the rule's what-if limit would have given the descriptor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<Code>,
}

/// Hashes values of requests for records. Equal values of one key have equal hashes.
#[derive(Clone, Copy)]
pub struct ValueHash(KeySeed);

impl ValueHash {
    /// A hash with this seed. A client that knows the seed can find values by trying them.
    pub fn new(seed: KeySeed) -> ValueHash {
        ValueHash(seed)
    }

    /// The hash of the value of an entry: 32 hexadecimal digits.
    pub fn of(&self, entry: &Entry<'_>) -> String {
        let mut builder = KeyBuilder::start(&self.0);
        let [high, low] =
            builder.text("recorded value").text(entry.key).text(entry.value).finish().0;
        format!("{high:016x}{low:016x}")
    }
}

impl<'a> DecisionRecord<'a> {
    /// The record of `request`, which `rules` decided as of `at`. With `hash`, only values that the
    /// matched rule names are plain: in its selector, or as a factor of its cost.
    pub fn new(
        rules: &'a RuleSet,
        request: &'a Request<'a>,
        verdict: &'a Verdict,
        at: Micros,
        hash: Option<&ValueHash>,
    ) -> DecisionRecord<'a> {
        let lease = lease(verdict).map(|id| match hash {
            Some(hash) => Cow::Owned(hash.of(&Entry { key: LEASE_KEY, value: id })),
            None => Cow::Borrowed(id),
        });
        let decided = request.descriptors.iter().zip(&verdict.statuses).enumerate();
        let record = |(index, (descriptor, status)): (usize, (&Descriptor<'a>, &Status))| {
            let rule = status.reason.rule().and_then(|index| rules.rules().get(index));
            DescriptorRecord {
                entries: recorded_entries(descriptor, rule, hash),
                hits: descriptor.hits_addend,
                negative: descriptor.is_negative_hits,
                limit: descriptor.limit,
                code: status.code,
                rule: rule.map(|rule| &*rule.display_name),
                reason: status.reason.name(),
                remaining: status.limit.as_ref().map(|_| status.remaining),
                lease: lease.clone().filter(|_| rule.is_some_and(|rule| opens_lease(rule, status))),
                what_if: verdict.what_if_code(index),
            }
        };
        DecisionRecord {
            at: at.0,
            domain: request.domain,
            hits: request.hits_addend,
            descriptors: decided.map(record).collect(),
            code: verdict.code,
            trace: request.trace.traceparent.and_then(trace_id),
        }
    }

    /// The record as a line that ends with a newline. `None` if it is longer than
    /// [`LINE_BYTES_MAX`].
    pub fn to_line(&self) -> Option<Vec<u8>> {
        let mut line = BoundedLine(Vec::with_capacity(512));
        serde_json::to_writer(&mut line, self).ok()?;
        line.0.push(b'\n');
        Some(line.0)
    }
}

/// The keys and values of a descriptor that `rule` decided. With `hash`, a value that the rule does not
/// name is hashed, and owned.
pub fn recorded_entries<'a>(
    descriptor: &Descriptor<'a>,
    rule: Option<&Rule>,
    hash: Option<&ValueHash>,
) -> Vec<(&'a str, Cow<'a, str>)> {
    let sent: &'a [Entry<'a>] = descriptor.entries;
    let Some(hash) = hash else {
        return sent.iter().map(|entry| (entry.key, Cow::Borrowed(entry.value))).collect();
    };
    // A descriptor that closes a lease has an entry without a level of the rule.
    let closes_lease = rule.is_some_and(|rule| sent.len() > rule.levels());
    let mut level = 0;
    let record = |entry: &'a Entry<'a>| {
        if closes_lease && entry.key == LEASE_KEY {
            return (entry.key, Cow::Owned(hash.of(entry)));
        }
        let is_written = rule.is_some_and(|rule| names_value(rule, level, entry.value));
        level += 1;
        let value =
            if is_written { Cow::Borrowed(entry.value) } else { Cow::Owned(hash.of(entry)) };
        (entry.key, value)
    };
    sent.iter().map(record).collect()
}

/// Whether `rule` names this value of the entry at `level`, so that a replay needs it.
fn names_value(rule: &Rule, level: usize, value: &str) -> bool {
    rule.has_exact_value(level)
        || match rule.cost.as_deref() {
            Some(Cost::ByValue { level: of, factors, .. }) => {
                *of == level && factors.contains_key(value)
            }
            Some(Cost::Fixed(_)) | None => false,
        }
}

/// The id of the lease that the request opened.
fn lease(verdict: &Verdict) -> Option<&str> {
    verdict.metadata.as_ref()?.get("lease")?.get("id")?.as_str()
}

/// Whether `status` is about hits that were taken under the lease of their request.
fn opens_lease(rule: &Rule, status: &Status) -> bool {
    use crate::decision::DecisionReason::{Counted, Fallback};
    let (hits, decision) = match status.reason {
        Counted { hits, decision, .. } => (hits, Some(decision)),
        Fallback { hits, decision, .. } => (hits, decision),
        _ => return false,
    };
    rule.leases() && hits > 0 && decision.is_some_and(|decision| decision.allowed)
}

/// The trace id in a `traceparent` of W3C Trace Context, if it is a valid one.
pub fn trace_id(traceparent: &str) -> Option<&str> {
    let id = traceparent.split('-').nth(1)?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_valid = id.len() == 32 && id.bytes().all(is_digit) && id.bytes().any(|it| it != b'0');
    is_valid.then_some(id)
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A line that is being written. It takes fewer bytes than [`LINE_BYTES_MAX`], so that the newline has
/// room.
struct BoundedLine(Vec<u8>);

impl Write for BoundedLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() >= LINE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A recorded request, as far as it is needed to decide it again. Texts without escapes are borrowed
/// from the line. Unknown fields are ignored.
///
/// The request is not validated: see [`Request::validate`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RecordedRequest<'a> {
    /// See [`DecisionRecord::at`].
    pub at: u64,
    /// The domain.
    #[serde(borrow)]
    pub domain: Cow<'a, str>,
    /// The request's `hits_addend`; 0 if it is missing.
    #[serde(default)]
    pub hits: u32,
    /// The descriptors, in the request's order.
    #[serde(borrow)]
    pub descriptors: Vec<RecordedDescriptor<'a>>,
    /// The code of the response, if it was recorded.
    pub code: Option<Code>,
}

/// A descriptor of a [`RecordedRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RecordedDescriptor<'a> {
    /// The entries, in the descriptor's order.
    #[serde(borrow)]
    pub entries: Vec<RecordedEntry<'a>>,
    /// The descriptor's own `hits_addend`.
    pub hits: Option<u64>,
    /// Whether the hits are given back.
    #[serde(default)]
    pub negative: bool,
    /// The limit that the proxy sent.
    pub limit: Option<Override>,
    /// The code of the descriptor alone, if it was recorded.
    pub code: Option<Code>,
    /// The id of the lease under which the hits were taken. A later `lease` entry with this text
    /// closes the lease.
    pub lease: Option<String>,
}

/// The key and the value of a recorded entry: a list of two texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RecordedEntry<'a>(
    /// The key.
    #[serde(borrow)]
    pub Cow<'a, str>,
    /// The value. It may be a hash.
    #[serde(borrow)]
    pub Cow<'a, str>,
);

impl<'a> RecordedRequest<'a> {
    /// Reads a line, with or without a newline at its end.
    ///
    /// # Errors
    ///
    /// The first problem of the line, with its column.
    pub fn from_line(line: &'a [u8]) -> Result<RecordedRequest<'a>, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

impl RecordedEntry<'_> {
    /// The entry, borrowed.
    pub fn as_entry(&self) -> Entry<'_> {
        Entry { key: &self.0, value: &self.1 }
    }
}

#[cfg(test)]
mod tests;
