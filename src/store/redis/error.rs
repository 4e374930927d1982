//! Classifies the errors of calls: whether the call ran, and what can be done next.
//!
//! The first word of an error reply names its cause. After any other error it is known only whether
//! the call was sent.

use bytes::Bytes;

use super::name::HASH_SLOTS;
use super::reply::{Reply, ReplyError};
use crate::store::StoreError;

/// The longest host name in a reply, in bytes: that of DNS (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 255;

/// Characters of a text from Redis that a log line shows.
const SHOWN_CHARS_MAX: usize = 256;

/// Whether a host from a reply can be one: short, and fit for a line of the log.
pub(super) fn is_host(host: &str) -> bool {
    host.len() <= HOST_BYTES_MAX && !host.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// Redis replied with an error, which has this text.
    #[error("{}", shown(.0))]
    Reply(Bytes),
    /// Redis replied with something else than the call expects.
    #[error("the reply is not one of this version; check which programs use the keys of weir")]
    Unexpected,
    /// There was no connection. The call was not sent.
    #[error("there is no connection")]
    NotSent,
    /// Too many calls wait for the connection. The call was not sent.
    #[error("too many calls wait for the connection")]
    Busy,
    /// The connection was lost after the call may have been sent.
    #[error("the connection was lost before the reply")]
    Lost,
}

/// Why a connection could not be opened, or was lost, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConnectionError(String);

impl ConnectionError {
    /// An error with this text.
    pub(super) fn new(text: impl Into<String>) -> ConnectionError {
        ConnectionError(text.into())
    }

    /// This error, with the server that caused it.
    pub(super) fn at(self, server: &str) -> ConnectionError {
        ConnectionError(format!("{server}: {}", self.0))
    }
}

impl From<std::io::Error> for ConnectionError {
    fn from(error: std::io::Error) -> ConnectionError {
        ConnectionError(error.to_string())
    }
}

impl From<ReplyError> for ConnectionError {
    fn from(error: ReplyError) -> ConnectionError {
        ConnectionError(error.to_string())
    }
}

impl From<CallError> for ConnectionError {
    fn from(error: CallError) -> ConnectionError {
        ConnectionError(error.to_string())
    }
}

/// The result that a reply means: an error reply is an error.
pub(super) fn result(reply: Reply) -> Result<Reply, CallError> {
    match reply {
        Reply::Error(text) => Err(CallError::Reply(text)),
        reply => Ok(reply),
    }
}

/// A text from Redis for the log: short, and on one line.
pub(super) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whether a node replied that it does not have the called function.
pub(super) fn is_function_missing(error: &CallError) -> bool {
    matches!(error, CallError::Reply(text) if text.starts_with(b"ERR Function not found"))
}

/// The class of an error, which decides what happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedisError {
    /// The call did not run: the node does not have the script.
    NoScript,
    /// The call did not run: the node does not have the function, or the user may not call it.
    NoFunction,
    /// The call did not run: the hash slot has another owner.
    Moved(Redirect),
    /// The call did not run: the hash slot is moving, and this counter is on the other node.
    Ask(Redirect),
    /// The call did not run: the hash slot is moving, and the call's counters are on both nodes.
    TryAgain,
    /// The call did not run: the node is starting and still loads its data.
    Loading,
    /// The call did not run: the node accepts no writes now, because it has no memory, cannot save
    /// or has too few replicas. A step that writes nothing may run alone.
    NoWrites,
    /// The call did not run: the node is now a replica.
    ReadOnly,
    /// The call did not run: the Cluster does not serve the hash slot.
    ClusterDown,
    /// No repetition helps; the caller gets this error.
    Final(StoreError),
}

/// The address in a `MOVED` or `ASK` reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    /// The hash slot.
    pub(super) hash_slot: u16,
    /// The host; empty for the host of the node that replied.
    pub(super) host: String,
    /// The port.
    pub(super) port: u16,
}

impl RedisError {
    /// Classifies `error`.
    pub(super) fn classify(error: &CallError) -> RedisError {
        match error {
            _ if is_function_missing(error) => RedisError::NoFunction,
            CallError::Reply(text) => RedisError::of_reply(&String::from_utf8_lossy(text)),
            CallError::Unexpected => RedisError::Final(StoreError::InvalidReply),
            CallError::NotSent => RedisError::Final(StoreError::Unreachable),
            CallError::Busy => RedisError::Final(StoreError::Busy),
            CallError::Lost => RedisError::Final(StoreError::ConnectionLost),
        }
    }

    fn of_reply(text: &str) -> RedisError {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "NOSCRIPT" => RedisError::NoScript,
            "MOVED" => Redirect::parse(rest)
                .map_or(RedisError::Final(StoreError::InvalidReply), RedisError::Moved),
            "ASK" => Redirect::parse(rest)
                .map_or(RedisError::Final(StoreError::InvalidReply), RedisError::Ask),
            "TRYAGAIN" => RedisError::TryAgain,
            "LOADING" => RedisError::Loading,
            "OOM" => RedisError::NoWrites,
            "READONLY" => RedisError::ReadOnly,
            "CLUSTERDOWN" => RedisError::ClusterDown,
            // Raised by a running script or function, which may have written before: NOPERM, for
            // example, if the user may run only some of its commands.
            _ if rest.contains("user_script:") || rest.contains("user_function:") => {
                RedisError::Final(StoreError::InvalidReply)
            }
            "NOPERM" if rest.contains("'fcall'") => RedisError::NoFunction,
            "MISCONF" | "NOREPLICAS" => RedisError::NoWrites,
            _ => RedisError::Final(StoreError::ErrorReply),
        }
    }
}

impl Redirect {
    /// Parses `<slot> <host>:<port>`. An IPv6 host contains colons itself.
    fn parse(text: &str) -> Option<Redirect> {
        let (hash_slot, address) = text.trim().split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        // Since Redis 7 a node without a known host name sends `?`.
        let host = if host == "?" { "" } else { host };
        let hash_slot: u16 = hash_slot.parse().ok()?;
        if usize::from(hash_slot) >= HASH_SLOTS || !is_host(host) {
            return None;
        }
        Some(Redirect { hash_slot, host: host.to_owned(), port: port.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_differ_from_a_lost_connection() {
        let redirect =
            |hash_slot, host: &str, port| Redirect { hash_slot, host: host.into(), port };
        let reply = |text: &'static str| CallError::Reply(Bytes::from_static(text.as_bytes()));
        let long_host = format!("MOVED 1 {}:6381", "a".repeat(256));
        let table = [
            (reply("NOSCRIPT No matching script."), RedisError::NoScript),
            (
                reply("MOVED 3999 10.0.0.1:6381"),
                RedisError::Moved(redirect(3999, "10.0.0.1", 6381)),
            ),
            (reply("MOVED 1 fe80::1:6381"), RedisError::Moved(redirect(1, "fe80::1", 6381))),
            (reply("ASK 16383 :7000"), RedisError::Ask(redirect(16_383, "", 7000))),
            (reply("ASK 5 ?:7000"), RedisError::Ask(redirect(5, "", 7000))),
            (reply("MOVED 16384 a:1"), RedisError::Final(StoreError::InvalidReply)),
            (reply("MOVED"), RedisError::Final(StoreError::InvalidReply)),
            (CallError::Reply(long_host.into()), RedisError::Final(StoreError::InvalidReply)),
            (reply("TRYAGAIN Multiple keys"), RedisError::TryAgain),
            (reply("READONLY You can't write"), RedisError::ReadOnly),
            (reply("LOADING Redis is loading"), RedisError::Loading),
            (reply("OOM command not allowed"), RedisError::NoWrites),
            (reply("MISCONF Redis is configured to save"), RedisError::NoWrites),
            (reply("NOREPLICAS Not enough good replicas"), RedisError::NoWrites),
            (
                reply("MISCONF Redis is configured to save script: 2c, on @user_script:9."),
                RedisError::Final(StoreError::InvalidReply),
            ),
            (reply("ERR Function not found"), RedisError::NoFunction),
            (
                reply("NOPERM User weir has no permissions to run the 'fcall' command"),
                RedisError::NoFunction,
            ),
            (
                reply("NOPERM no permissions script: weir_0_gcra, on @user_function:9."),
                RedisError::Final(StoreError::InvalidReply),
            ),
            (reply("CLUSTERDOWN Hash slot not served"), RedisError::ClusterDown),
            (reply("ERR unknown command"), RedisError::Final(StoreError::ErrorReply)),
            (reply(""), RedisError::Final(StoreError::ErrorReply)),
            (
                reply("ERR user_script:9: data string too short script: 2c, on @user_script:9."),
                RedisError::Final(StoreError::InvalidReply),
            ),
            (
                reply("NOPERM this user has no permissions script: 2c, on @user_script:9."),
                RedisError::Final(StoreError::InvalidReply),
            ),
            (
                reply("NOPERM this user has no permissions to run the 'evalsha' command"),
                RedisError::Final(StoreError::ErrorReply),
            ),
            (CallError::Unexpected, RedisError::Final(StoreError::InvalidReply)),
            (CallError::NotSent, RedisError::Final(StoreError::Unreachable)),
            (CallError::Busy, RedisError::Final(StoreError::Busy)),
            (CallError::Lost, RedisError::Final(StoreError::ConnectionLost)),
        ];
        for (error, class) in table {
            assert_eq!(RedisError::classify(&error), class, "{error}");
        }
    }

    #[test]
    fn a_text_for_the_log_is_short_and_on_one_line() {
        let text = format!("ERR a\nb\x1b[0m{}", "x".repeat(1_000));
        let shown = CallError::Reply(text.into()).to_string();
        assert!(shown.starts_with("ERR a b [0mxxx") && shown.len() == SHOWN_CHARS_MAX, "{shown}");
    }
}
