//! A harness for fuzzing: reads the bytes of a server as every reader of replies does.
//!
//! Its users are the fuzz target `redis_reply` and `tests/random_inputs`, both by
//! `fuzz/src/replies.rs`. They are other crates, so this module is public, with the feature `fuzz`
//! alone.

use bytes::Bytes;

use super::connection::reply_bytes;
use super::discovery::parse_time;
use super::error::{NextAction, result};
use super::reply::{Reply, ReplyBound, ReplyError, ReplyReader};
use super::rtt_samples::{RttSample, RttSamples};
use super::sentinel::{other_sentinels, primary};
use super::topology::hash_slot_ranges;
use crate::time::Micros;

/// The bound of the replies. It is small, so that short inputs exceed it.
const BOUND: ReplyBound = ReplyBound { bytes: REPLY_BYTES_MAX, elements: 128 };

/// The most bytes of a reply.
pub const REPLY_BYTES_MAX: usize = 2_048;

/// What a connection reads from the bytes of a server, up to the first error.
#[derive(Debug)]
pub struct ReadReplies {
    replies: Vec<Reply>,
    error: Option<ReplyError>,
    /// The most bytes that were kept for an incomplete reply.
    pub kept: usize,
}

/// What a reply means to each of its readers. Hosts have a port.
#[derive(Debug)]
pub struct Meaning {
    /// The result of a script, as bytes.
    pub result: Option<Bytes>,
    /// The error of a script call, as the log shows it.
    pub error: Option<String>,
    /// The hash slot and the host that the error redirects to.
    pub redirect: Option<(u16, (String, u16))>,
    /// Ranges of hash slots, each with its first and its last one, and their owners.
    pub owners: Vec<(u16, u16, (String, u16))>,
    /// The primary that a sentinel names.
    pub primary: Option<(String, u16)>,
    /// The other sentinels that a sentinel names.
    pub sentinels: Vec<(String, u16)>,
    /// The instant on the node's clock, and how it is estimated from the local clock.
    pub now: Option<(Micros, Micros)>,
}

impl ReadReplies {
    /// Reads `bytes`, at most `read_max` at once, at least one.
    pub fn read(bytes: &[u8], read_max: usize) -> ReadReplies {
        read_within(BOUND, bytes, read_max)
    }

    /// Whether the replies and the error are the same.
    pub fn is_same(&self, other: &ReadReplies) -> bool {
        self.replies == other.replies && self.error == other.error
    }

    /// Whether all bytes were complete replies.
    pub fn is_complete(&self) -> bool {
        self.error.is_none() && self.kept == 0
    }

    /// Whether the same replies are read from what a server would send for them.
    pub fn reads_back(&self) -> bool {
        let mut bytes = Vec::new();
        self.replies.iter().for_each(|reply| encode(reply, &mut bytes));
        read_within(ReplyBound::USUAL, &bytes, usize::MAX).replies == self.replies
    }

    /// What each reply means.
    pub fn meanings(&self) -> impl Iterator<Item = Meaning> {
        self.replies.iter().map(Meaning::of)
    }
}

fn read_within(bound: ReplyBound, bytes: &[u8], read_max: usize) -> ReadReplies {
    let mut reader = ReplyReader::default();
    let mut received = ReadReplies { replies: Vec::new(), error: None, kept: 0 };
    for part in bytes.chunks(read_max.max(1)) {
        reader.room().extend_from_slice(part);
        loop {
            match reader.next(bound) {
                Ok(Some(reply)) => received.replies.push(reply),
                Ok(None) => break,
                Err(error) => {
                    received.error = Some(error);
                    return received;
                }
            }
        }
        received.kept = received.kept.max(reader.room().len());
    }
    received
}

/// Appends `reply` as a server sends it.
fn encode(reply: &Reply, bytes: &mut Vec<u8>) {
    let head = match reply {
        Reply::Text(text) => format!("${}\r\n", text.len()),
        Reply::Error(_) => "-".to_owned(),
        Reply::Integer(number) => format!(":{number}\r\n"),
        Reply::Nil => "$-1\r\n".to_owned(),
        Reply::Array(items) => format!("*{}\r\n", items.len()),
    };
    bytes.extend_from_slice(head.as_bytes());
    match reply {
        Reply::Text(text) | Reply::Error(text) => {
            bytes.extend_from_slice(text);
            bytes.extend_from_slice(b"\r\n");
        }
        Reply::Array(items) => items.iter().for_each(|item| encode(item, bytes)),
        Reply::Integer(_) | Reply::Nil => {}
    }
}

impl Meaning {
    fn of(reply: &Reply) -> Meaning {
        let called = result(reply.clone()).and_then(reply_bytes);
        let action = called.as_ref().err().map(|error| NextAction::after(error, true));
        let redirect = match action {
            Some(NextAction::SendToOwner(to) | NextAction::SendAsking(to)) => {
                Some((to.hash_slot, (to.host, to.port)))
            }
            _ => None,
        };
        let ranges = hash_slot_ranges(reply, "sender").unwrap_or_default();
        Meaning {
            error: called.as_ref().err().map(ToString::to_string),
            result: called.ok(),
            redirect,
            owners: ranges.into_iter().map(|range| (range.from, range.to, range.address)).collect(),
            primary: primary(reply),
            sentinels: other_sentinels(reply),
            now: parse_time(reply).map(|node| (node, estimate(node))),
        }
    }
}

/// The instant `node`, estimated from the local clock by a round trip in which the node read it.
fn estimate(node: Micros) -> Micros {
    let local = Micros::from_secs(1_700_000_000);
    let sample = RttSample { sent: local, received: local, node };
    RttSamples::default().add(sample).remote(local)
}
