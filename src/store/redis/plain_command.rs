//! Plain commands: commands on keys beside the counters, such as those of plans. Their replies are
//! values within a bound that the caller sets.

use std::time::Duration;

use super::reply::{Reply, ReplyBound};
use crate::store::StoreError;

/// What a plain command may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandBound {
    /// The most bytes of the reply, as Redis sends it. A longer reply closes the connection.
    pub bytes: usize,
    /// The most elements of all arrays of the reply. An element takes up to 40 bytes of memory, and
    /// more than that closes the connection.
    pub elements: usize,
    /// The longest time for all attempts.
    pub timeout: Duration,
}

impl CommandBound {
    /// The bound of most commands: 1 MiB and 16 384 elements.
    pub const fn small(timeout: Duration) -> CommandBound {
        let ReplyBound { bytes, elements } = ReplyBound::USUAL;
        CommandBound { bytes, elements, timeout }
    }

    pub(super) fn reply(self) -> ReplyBound {
        ReplyBound { bytes: self.bytes, elements: self.elements }
    }
}

/// The reply to a plain command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisValue {
    /// A missing string or array.
    Nil,
    /// An integer.
    Integer(i64),
    /// A string.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<RedisValue>),
}

impl RedisValue {
    /// The value of `reply`.
    ///
    /// # Errors
    /// [`StoreError::InvalidReply`] for an error inside an array. A command of a transaction failed when
    /// it ran, for example on a key of another type; the others ran.
    pub(super) fn of(reply: Reply) -> Result<RedisValue, StoreError> {
        match reply {
            Reply::Nil => Ok(RedisValue::Nil),
            Reply::Integer(number) => Ok(RedisValue::Integer(number)),
            Reply::Text(bytes) => Ok(RedisValue::Bytes(bytes.to_vec())),
            Reply::Error(_) => Err(StoreError::InvalidReply),
            Reply::Array(items) => {
                let items: Result<_, _> = items.into_iter().map(RedisValue::of).collect();
                items.map(RedisValue::List)
            }
        }
    }

    /// An integer.
    pub fn integer(&self) -> Option<i64> {
        match self {
            RedisValue::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// A string in UTF-8.
    pub fn text(&self) -> Option<&str> {
        match self {
            RedisValue::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The items of an array.
    pub fn list(&self) -> Option<&[RedisValue]> {
        match self {
            RedisValue::List(items) => Some(items),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reply_but_an_error_is_a_value() {
        let text = |text: &'static str| Reply::Text(text.as_bytes().into());
        let reply = Reply::Array(vec![
            text("a"),
            Reply::Integer(-7),
            Reply::Nil,
            Reply::Array(vec![text("\u{fc}")]),
        ]);
        let value = RedisValue::of(reply).unwrap();
        let items = value.list().unwrap();
        assert_eq!((items[0].text(), items[0].integer()), (Some("a"), None));
        assert_eq!((items[1].integer(), items[1].text()), (Some(-7), None));
        assert_eq!((&items[2], items[2].list()), (&RedisValue::Nil, None));
        assert_eq!(items[3].list().and_then(|inner| inner[0].text()), Some("\u{fc}"));
        let binary = RedisValue::of(Reply::Text(b"\xff"[..].into())).unwrap();
        assert_eq!(binary.text(), None);
        assert_eq!(binary, RedisValue::Bytes(vec![0xff]));
        let failed = Reply::Array(vec![Reply::Integer(1), Reply::Error("WRONGTYPE".into())]);
        assert_eq!(RedisValue::of(failed), Err(StoreError::InvalidReply));
    }

    #[test]
    fn a_small_bound_is_that_of_most_commands() {
        let bound = CommandBound::small(Duration::from_secs(1));
        assert_eq!(bound.reply(), ReplyBound::USUAL);
    }
}
