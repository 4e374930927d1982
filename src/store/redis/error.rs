//! Errors of calls, and what follows each of them.
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
    #[error(
        "the reply is not one of this version; check whether another program or version of weir \
         writes `weir:*` keys"
    )]
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

/// Whether a reply refuses functions lastingly: the node has none, or the user may not use them.
/// Other codes, such as `LOADING` or `OOM`, name a state of the node that passes.
pub(super) fn refuses_functions(error: &CallError) -> bool {
    match error {
        CallError::Reply(text) => text.starts_with(b"ERR ") || text.starts_with(b"NOPERM"),
        CallError::Unexpected => true,
        // A connection that fails says nothing about functions.
        CallError::NotSent | CallError::Busy | CallError::Lost => false,
    }
}

/// What follows an error of a call. A call is sent again only after a reply that shows that it did
/// not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Load the script, and send the call again: the node does not have it.
    LoadScript,
    /// Load the functions, and send the call again: the node does not have them or no `FCALL`, or
    /// the user may not call them.
    LoadFunctions,
    /// Send each step in a separate call of its script.
    SendAlone,
    /// Send the call to the new owner of the hash slot.
    SendToOwner(Redirect),
    /// Send the call after `ASKING`: the hash slot is moving, and this counter is on the other
    /// node.
    SendAsking(Redirect),
    /// Send the call again after a pause: the node cannot serve it yet.
    SendLater,
    /// Give up. No repetition helps.
    Fail(StoreError),
    /// Give up, and refresh the topology: the node may have gone or lost its hash slot.
    FailAndRefresh(StoreError),
    /// Give up, reconnect, and refresh the topology: the node is now a replica. A sentinel names
    /// the new primary to a new connection.
    FailAndReconnect(StoreError),
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

impl NextAction {
    /// What follows `error`. `is_alone`: the call had one step, in a script. Then no other step can
    /// have caused the error.
    pub(super) fn after(error: &CallError, is_alone: bool) -> NextAction {
        match error {
            _ if is_function_missing(error) => NextAction::LoadFunctions,
            CallError::Reply(text) => {
                NextAction::after_reply(&String::from_utf8_lossy(text), is_alone)
            }
            CallError::Unexpected => NextAction::Fail(StoreError::InvalidReply),
            CallError::NotSent => NextAction::FailAndRefresh(StoreError::Unreachable),
            CallError::Busy => NextAction::Fail(StoreError::Busy),
            CallError::Lost => NextAction::FailAndRefresh(StoreError::ConnectionLost),
        }
    }

    fn after_reply(text: &str, is_alone: bool) -> NextAction {
        let malformed = NextAction::Fail(StoreError::InvalidReply);
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "NOSCRIPT" => NextAction::LoadScript,
            "MOVED" => Redirect::parse(rest).map_or(malformed, NextAction::SendToOwner),
            "ASK" => Redirect::parse(rest).map_or(malformed, NextAction::SendAsking),
            // The hash slot is moving, and the call's counters are on both nodes.
            "TRYAGAIN" if !is_alone => NextAction::SendAlone,
            "TRYAGAIN" | "LOADING" => NextAction::SendLater,
            // Inside a script too: Redis checks them before its first write.
            "OOM" | "MISCONF" | "NOREPLICAS" => NextAction::after_refused_writes(is_alone),
            "READONLY" => NextAction::FailAndReconnect(StoreError::ErrorReply),
            "CLUSTERDOWN" => NextAction::FailAndRefresh(StoreError::ErrorReply),
            // Raised by a running script or function, which may have written before: NOPERM, for
            // example, if the user may run only some of its commands.
            _ if rest.contains("user_script:") || rest.contains("user_function:") => malformed,
            "NOPERM" if rest.contains("'fcall'") => NextAction::LoadFunctions,
            "ERR" if names_unknown_fcall(rest) => NextAction::LoadFunctions,
            _ => NextAction::Fail(StoreError::ErrorReply),
        }
    }

    /// The node accepts no writes now: it has no memory, cannot save or has too few replicas. It
    /// then refuses every function, but a script only at its first write. So a step that writes
    /// nothing may run alone.
    fn after_refused_writes(is_alone: bool) -> NextAction {
        if is_alone { NextAction::Fail(StoreError::ErrorReply) } else { NextAction::SendAlone }
    }
}

/// Whether an error without its code is ``unknown command 'FCALL'``, with any quotes, as from a
/// server or a proxy without functions, or with a renamed command. The arguments of a command follow
/// its name, so only the name is compared.
fn names_unknown_fcall(text: &str) -> bool {
    let name = text.strip_prefix("unknown command").unwrap_or_default();
    let name = name.trim_start_matches([' ', '\'', '`', '"']);
    name.get(..5).is_some_and(|name| name.eq_ignore_ascii_case("fcall"))
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

    fn reply(text: &'static str) -> CallError {
        CallError::Reply(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn each_error_has_its_next_action() {
        let redirect =
            |hash_slot, host: &str, port| Redirect { hash_slot, host: host.into(), port };
        let long_host = format!("MOVED 1 {}:6381", "a".repeat(256));
        let malformed = NextAction::Fail(StoreError::InvalidReply);
        let refused = NextAction::Fail(StoreError::ErrorReply);
        let table = [
            (reply("NOSCRIPT No matching script."), NextAction::LoadScript),
            (
                reply("MOVED 3999 10.0.0.1:6381"),
                NextAction::SendToOwner(redirect(3999, "10.0.0.1", 6381)),
            ),
            (reply("MOVED 1 fe80::1:6381"), NextAction::SendToOwner(redirect(1, "fe80::1", 6381))),
            (reply("ASK 16383 :7000"), NextAction::SendAsking(redirect(16_383, "", 7000))),
            (reply("ASK 5 ?:7000"), NextAction::SendAsking(redirect(5, "", 7000))),
            (reply("MOVED 16384 a:1"), malformed.clone()),
            (reply("MOVED"), malformed.clone()),
            (CallError::Reply(long_host.into()), malformed.clone()),
            (reply("TRYAGAIN Multiple keys"), NextAction::SendLater),
            (
                reply("READONLY You can't write"),
                NextAction::FailAndReconnect(StoreError::ErrorReply),
            ),
            (reply("LOADING Redis is loading"), NextAction::SendLater),
            (reply("OOM command not allowed"), refused.clone()),
            (reply("MISCONF Redis is configured to save"), refused.clone()),
            (reply("NOREPLICAS Not enough good replicas"), refused.clone()),
            (
                reply("MISCONF Redis is configured to save script: 2c, on @user_script:9."),
                refused.clone(),
            ),
            (reply("NOREPLICAS Not enough script: 2c, on @user_script:9."), refused.clone()),
            (reply("ERR Function not found"), NextAction::LoadFunctions),
            (
                reply("ERR unknown command 'FCALL', with args beginning with: 'weir_0_gcra' "),
                NextAction::LoadFunctions,
            ),
            (reply("ERR unknown command `fcall`"), NextAction::LoadFunctions),
            (
                reply("ERR unknown command 'EVALSHA', with args beginning with: 'FCALL' "),
                refused.clone(),
            ),
            (
                reply("NOPERM User weir has no permissions to run the 'fcall' command"),
                NextAction::LoadFunctions,
            ),
            (
                reply("NOPERM no permissions script: weir_0_gcra, on @user_function:9."),
                malformed.clone(),
            ),
            (
                reply("CLUSTERDOWN Hash slot not served"),
                NextAction::FailAndRefresh(StoreError::ErrorReply),
            ),
            (reply("ERR unknown command"), refused.clone()),
            (reply(""), refused.clone()),
            (
                reply("ERR user_script:9: data string too short script: 2c, on @user_script:9."),
                malformed.clone(),
            ),
            (
                reply("NOPERM this user has no permissions script: 2c, on @user_script:9."),
                malformed.clone(),
            ),
            (reply("NOPERM this user has no permissions to run the 'evalsha' command"), refused),
            (CallError::Unexpected, malformed),
            (CallError::NotSent, NextAction::FailAndRefresh(StoreError::Unreachable)),
            (CallError::Busy, NextAction::Fail(StoreError::Busy)),
            (CallError::Lost, NextAction::FailAndRefresh(StoreError::ConnectionLost)),
        ];
        for (error, action) in table {
            assert_eq!(NextAction::after(&error, true), action, "{error}");
        }
    }

    #[test]
    fn steps_that_share_a_call_may_succeed_alone() {
        let table = [
            ("TRYAGAIN Multiple keys", true),
            ("OOM command not allowed", true),
            ("MISCONF Redis is configured to save", true),
            ("NOREPLICAS Not enough good replicas", true),
            ("LOADING Redis is loading", false),
            ("MISCONF Redis is configured to save script: 2c, on @user_script:9.", true),
            ("NOREPLICAS Not enough script: 2c, on @user_script:9.", true),
        ];
        for (text, is_sent_alone) in table {
            let action = NextAction::after(&reply(text), false);
            assert_eq!(action == NextAction::SendAlone, is_sent_alone, "{text}");
        }
    }

    #[test]
    fn a_text_for_the_log_is_short_and_on_one_line() {
        let text = format!("ERR a\nb\x1b[0m{}", "x".repeat(1_000));
        let shown = CallError::Reply(text.into()).to_string();
        assert!(shown.starts_with("ERR a b [0mxxx") && shown.len() == SHOWN_CHARS_MAX, "{shown}");
    }
}
