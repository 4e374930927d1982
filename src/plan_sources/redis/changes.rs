//! The stream of changes: its pages, and what each entry means. Pure.
//!
//! A reader remembers the id of the last entry, and reads again from that entry on. If the entry is
//! still the first one, the reader has missed nothing: Redis trims the oldest entries first. If it is
//! not, the stream was trimmed or deleted, or another primary has other entries.

use crate::store::RedisValue;

/// The stream. All keys of plans have one hash tag, so one transaction can write them.
pub(super) const CHANGES_KEY: &str = "weir:{plans}:changes";

/// The most entries of one page.
const PAGE_ENTRIES: usize = 1_000;

/// The most bytes of a page. An entry has at most the longest names of a customer and of a plan, about
/// 4.5 KB.
pub(super) const PAGE_BYTES_MAX: usize = 8 << 20;

/// The number of entries over which writers trim the stream. An instance that was away for longer
/// asks for everything again.
const STREAM_ENTRIES: &str = "100000";

/// How far the stream was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StreamPosition {
    /// It had no entries.
    Empty,
    /// Up to the entry with this id.
    After(String),
}

/// What an entry means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanChange {
    /// The numbers of a plan changed, or there are other plans.
    Plans,
    /// This customer has this plan from now on, or none.
    Customer { customer: String, plan: Option<String> },
}

/// The changes that follow a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangePage {
    /// In the order of the stream.
    pub(super) changes: Vec<PlanChange>,
    /// The position after them.
    pub(super) position: StreamPosition,
    /// Whether there may be more.
    pub(super) is_full: bool,
}

/// A reply that no stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedStream;

/// The words of the command for the changes after `position`.
pub(super) fn page_command(position: &StreamPosition) -> Vec<Vec<u8>> {
    let start = match position {
        StreamPosition::Empty => "-",
        StreamPosition::After(id) => id,
    };
    // One more, for the last entry of the page before.
    let count = (PAGE_ENTRIES + 1).to_string();
    words(&["XRANGE", CHANGES_KEY, start, "+", "COUNT", &count])
}

/// The words of the command for the last entry.
pub(super) fn last_command() -> Vec<Vec<u8>> {
    words(&["XREVRANGE", CHANGES_KEY, "+", "-", "COUNT", "1"])
}

/// The words of the command that adds `change`.
pub(super) fn add_command(change: &PlanChange) -> Vec<Vec<u8>> {
    let mut all = words(&["XADD", CHANGES_KEY, "MAXLEN", "~", STREAM_ENTRIES, "*"]);
    all.extend(match change {
        PlanChange::Plans => words(&["plans", "1"]),
        PlanChange::Customer { customer, plan: Some(plan) } => {
            words(&["customer", customer, "plan", plan])
        }
        PlanChange::Customer { customer, plan: None } => words(&["customer", customer]),
    });
    all
}

/// The changes in the reply to [`page_command`]; `None` if changes may have been missed.
///
/// # Errors
/// [`MalformedStream`] if the reply has no entries of a stream.
pub(super) fn read_page(
    position: &StreamPosition,
    reply: &RedisValue,
) -> Result<Option<ChangePage>, MalformedStream> {
    let entries = reply.list().ok_or(MalformedStream)?;
    let is_full = entries.len() > PAGE_ENTRIES;
    let new = match position {
        // Writers do not trim a stream this short, so no entry is missing before the first one.
        StreamPosition::Empty if !is_full => entries,
        StreamPosition::Empty => return Ok(None),
        StreamPosition::After(id) => match entries.split_first() {
            Some((first, rest)) if entry_id(first)? == id => rest,
            _ => return Ok(None),
        },
    };
    let (mut changes, mut position) = (Vec::new(), position.clone());
    for entry in new {
        let Some(found) = meaning(entry)? else { return Ok(None) };
        changes.extend(found);
        position = StreamPosition::After(entry_id(entry)?.to_owned());
    }
    Ok(Some(ChangePage { changes, position, is_full }))
}

/// The position after the entry in the reply to [`last_command`].
///
/// # Errors
/// [`MalformedStream`] if the reply has no entries of a stream.
pub(super) fn read_last(reply: &RedisValue) -> Result<StreamPosition, MalformedStream> {
    match reply.list().ok_or(MalformedStream)? {
        [] => Ok(StreamPosition::Empty),
        [last, ..] => Ok(StreamPosition::After(entry_id(last)?.to_owned())),
    }
}

fn entry_id(entry: &RedisValue) -> Result<&str, MalformedStream> {
    let id = entry.list().and_then(|parts| parts.first()).and_then(RedisValue::text);
    id.ok_or(MalformedStream)
}

/// What an entry means. `None` for fields that this version does not know: anything may have changed.
fn meaning(entry: &RedisValue) -> Result<Option<Vec<PlanChange>>, MalformedStream> {
    let fields = entry.list().and_then(|parts| parts.get(1)).and_then(RedisValue::list);
    let fields = fields.ok_or(MalformedStream)?;
    let (mut changes, mut changed, mut plan) = (Vec::new(), None, None);
    for pair in fields.chunks_exact(2) {
        match (&pair[0], pair[1].text()) {
            (RedisValue::Bytes(name), _) if name == b"plans" => changes.push(PlanChange::Plans),
            // A name that is no text is that of no customer: values of requests are texts.
            (RedisValue::Bytes(name), value) if name == b"customer" => changed = Some(value),
            (RedisValue::Bytes(name), value) if name == b"plan" => plan = value,
            _ => return Ok(None),
        }
    }
    match changed {
        Some(Some(customer)) => {
            let plan = plan.filter(|plan| !plan.is_empty()).map(str::to_owned);
            changes.push(PlanChange::Customer { customer: customer.to_owned(), plan });
            Ok(Some(changes))
        }
        Some(None) => Ok(Some(changes)),
        None if changes.is_empty() => Ok(None),
        None => Ok(Some(changes)),
    }
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> RedisValue {
        RedisValue::Bytes(text.as_bytes().to_vec())
    }

    fn entry(id: &str, fields: &[&str]) -> RedisValue {
        let fields = fields.iter().map(|field| text(field)).collect();
        RedisValue::List(vec![text(id), RedisValue::List(fields)])
    }

    fn after(id: &str) -> StreamPosition {
        StreamPosition::After(id.to_owned())
    }

    fn customer(customer: &str, plan: Option<&str>) -> PlanChange {
        PlanChange::Customer { customer: customer.to_owned(), plan: plan.map(str::to_owned) }
    }

    #[test]
    fn entries_after_the_known_one_are_changes() {
        let stream = RedisValue::List(vec![
            entry("5-0", &["customer", "old", "plan", "pro"]),
            entry("5-1", &["customer", "acme", "plan", "pro"]),
            entry("6-0", &["customer", "acme"]),
            entry("6-1", &["customer", "b", "plan", ""]),
            entry("7-0", &["plans", "1"]),
            entry("8-0", &["plans", "1", "plan", "free", "customer", "c"]),
        ]);
        let page = read_page(&after("5-0"), &stream).unwrap().unwrap();
        let expected = vec![
            customer("acme", Some("pro")),
            customer("acme", None),
            customer("b", None),
            PlanChange::Plans,
            PlanChange::Plans,
            customer("c", Some("free")),
        ];
        assert_eq!(page, ChangePage { changes: expected, position: after("8-0"), is_full: false });
        let nothing = RedisValue::List(vec![entry("5-0", &["plans", "1"])]);
        let page = read_page(&after("5-0"), &nothing).unwrap().unwrap();
        assert_eq!((page.changes, page.position), (vec![], after("5-0")));
        let page = read_page(&StreamPosition::Empty, &RedisValue::List(vec![])).unwrap().unwrap();
        assert_eq!((page.changes, page.position), (vec![], StreamPosition::Empty));
    }

    #[test]
    fn missed_changes_are_noticed() {
        let list = |entries: Vec<RedisValue>| RedisValue::List(entries);
        let many = || (1..=PAGE_ENTRIES + 1).map(|n| entry(&format!("{n}-0"), &["plans", "1"]));
        let table = [
            ("trimmed", after("4-0"), list(vec![entry("5-0", &["plans", "1"])])),
            ("deleted", after("4-0"), list(vec![])),
            ("unknown fields", after("1-0"), {
                list(vec![entry("1-0", &["plans", "1"]), entry("2-0", &["tariff", "1"])])
            }),
            ("no field", StreamPosition::Empty, list(vec![entry("2-0", &["plan", "a"])])),
            ("too many for a stream that was empty", StreamPosition::Empty, list(many().collect())),
        ];
        for (what, position, reply) in table {
            assert_eq!(read_page(&position, &reply), Ok(None), "{what}");
        }
        let page = read_page(&after("1-0"), &list(many().collect())).unwrap().unwrap();
        assert!(page.is_full);
        assert_eq!((page.changes.len(), page.position), (PAGE_ENTRIES, after("1001-0")));
        let few = list(many().take(PAGE_ENTRIES).collect());
        let page = read_page(&StreamPosition::Empty, &few).unwrap().unwrap();
        assert!(!page.is_full);
        assert_eq!(page.changes.len(), PAGE_ENTRIES);
    }

    #[test]
    fn a_reply_without_entries_is_malformed() {
        let bad = [
            RedisValue::Nil,
            text("1-0"),
            RedisValue::List(vec![RedisValue::Nil]),
            RedisValue::List(vec![RedisValue::List(vec![])]),
            RedisValue::List(vec![RedisValue::List(vec![text("1-0")])]),
            RedisValue::List(vec![RedisValue::List(vec![text("1-0"), RedisValue::Nil])]),
            RedisValue::List(vec![RedisValue::List(vec![RedisValue::Bytes(vec![0xff])])]),
        ];
        for reply in bad {
            assert_eq!(
                read_page(&StreamPosition::Empty, &reply),
                Err(MalformedStream),
                "{reply:?}"
            );
        }
        assert_eq!(read_last(&RedisValue::Nil), Err(MalformedStream));
        assert_eq!(read_last(&RedisValue::List(vec![])), Ok(StreamPosition::Empty));
        let last = RedisValue::List(vec![entry("9-3", &[])]);
        assert_eq!(read_last(&last), Ok(after("9-3")));
    }

    #[test]
    fn a_name_that_is_no_text_changes_nothing() {
        let fields = vec![text("customer"), RedisValue::Bytes(vec![0xff]), text("plan"), text("a")];
        let binary = RedisValue::List(vec![text("1-0"), RedisValue::List(fields)]);
        let page = read_page(&StreamPosition::Empty, &RedisValue::List(vec![binary]));
        let page = page.unwrap().unwrap();
        assert_eq!((page.changes, page.position), (vec![], after("1-0")));
    }

    /// What one instance writes, the others read.
    #[test]
    fn written_changes_are_read() {
        for change in [PlanChange::Plans, customer("a b", Some("pro")), customer("\u{fc}", None)] {
            let command = add_command(&change);
            let fields = command[6..].iter().map(|word| RedisValue::Bytes(word.clone())).collect();
            let entry = RedisValue::List(vec![text("1-0"), RedisValue::List(fields)]);
            let page = read_page(&StreamPosition::Empty, &RedisValue::List(vec![entry]));
            assert_eq!(page.unwrap().unwrap().changes, vec![change]);
        }
    }

    #[test]
    fn a_page_begins_with_the_known_entry() {
        let shown = |words: Vec<Vec<u8>>| String::from_utf8(words.join(&b' ')).unwrap();
        let page = |position| shown(page_command(&position));
        assert_eq!(page(StreamPosition::Empty), "XRANGE weir:{plans}:changes - + COUNT 1001");
        assert_eq!(page(after("5-1")), "XRANGE weir:{plans}:changes 5-1 + COUNT 1001");
        assert_eq!(shown(last_command()), "XREVRANGE weir:{plans}:changes + - COUNT 1");
    }
}
