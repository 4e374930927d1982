//! Classifies the errors of calls: whether the call ran, and what can be done next.
//!
//! The first word of an error reply names its cause. Any other error comes from the connection, and
//! then it is unknown whether the call ran.

use fred::error::{Error, ErrorKind};

use super::name::HASH_SLOTS;
use crate::store::StoreError;

/// The class of an error, which decides what happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedisError {
    /// The call did not run: the node does not have the script.
    NoScript,
    /// The call did not run: the hash slot has another owner.
    Moved(Redirect),
    /// The call did not run: the hash slot is moving, and this counter is on the other node.
    Ask(Redirect),
    /// The call did not run: the hash slot is moving, and the call's counters are on both nodes.
    TryAgain,
    /// The call did not run: the node is starting and still loads its data.
    Loading,
    /// The call did not run: the node has no memory for writes.
    OutOfMemory,
    /// The call did not run: the node is now a replica.
    ReadOnly,
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
    pub(super) fn classify(error: &Error) -> RedisError {
        let text = error.details();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "NOSCRIPT" => RedisError::NoScript,
            "MOVED" => Redirect::parse(rest)
                .map_or(RedisError::Final(StoreError::InvalidReply), RedisError::Moved),
            "ASK" => Redirect::parse(rest)
                .map_or(RedisError::Final(StoreError::InvalidReply), RedisError::Ask),
            "TRYAGAIN" => RedisError::TryAgain,
            "LOADING" => RedisError::Loading,
            "OOM" => RedisError::OutOfMemory,
            "READONLY" => RedisError::ReadOnly,
            // Raised by a running script, which may have written before: NOPERM, for example, if the
            // user may run only some of its commands.
            _ if rest.contains("user_script:") => RedisError::Final(StoreError::InvalidReply),
            _ => RedisError::Final(final_error(error.kind(), word)),
        }
    }
}

/// The store error for an error that no repetition solves.
fn final_error(kind: &ErrorKind, word: &str) -> StoreError {
    match kind {
        // fred closes the connection on CLUSTERDOWN and fails every call in flight on it with this
        // error, so such a call may have run.
        ErrorKind::Cluster => StoreError::ConnectionLost,
        // Also the error of calls in flight on a connection whose task is aborted, because its node
        // has left the cluster.
        ErrorKind::Canceled => StoreError::ConnectionLost,
        // Rejected by fred before anything was sent.
        ErrorKind::Backpressure | ErrorKind::Routing => StoreError::Unreachable,
        ErrorKind::Timeout => StoreError::Timeout,
        ErrorKind::Parse | ErrorKind::NotFound | ErrorKind::Protocol => StoreError::InvalidReply,
        // An error reply starts with a word in capitals, such as NOPERM, NOAUTH or ERR.
        _ if word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            StoreError::ErrorReply
        }
        _ => StoreError::ConnectionLost,
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
        if usize::from(hash_slot) >= HASH_SLOTS {
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
        let unknown = |text: &'static str| Error::new(ErrorKind::Unknown, text);
        let table = [
            (unknown("NOSCRIPT No matching script."), RedisError::NoScript),
            (
                unknown("MOVED 3999 10.0.0.1:6381"),
                RedisError::Moved(redirect(3999, "10.0.0.1", 6381)),
            ),
            (unknown("MOVED 1 fe80::1:6381"), RedisError::Moved(redirect(1, "fe80::1", 6381))),
            (unknown("ASK 16383 :7000"), RedisError::Ask(redirect(16_383, "", 7000))),
            (unknown("ASK 5 ?:7000"), RedisError::Ask(redirect(5, "", 7000))),
            (unknown("MOVED 16384 a:1"), RedisError::Final(StoreError::InvalidReply)),
            (unknown("MOVED"), RedisError::Final(StoreError::InvalidReply)),
            (unknown("TRYAGAIN Multiple keys"), RedisError::TryAgain),
            (unknown("READONLY You can't write"), RedisError::ReadOnly),
            (unknown("LOADING Redis is loading"), RedisError::Loading),
            (unknown("OOM command not allowed"), RedisError::OutOfMemory),
            (unknown("ERR unknown command"), RedisError::Final(StoreError::ErrorReply)),
            (
                unknown("ERR user_script:9: data string too short script: 2c, on @user_script:9."),
                RedisError::Final(StoreError::InvalidReply),
            ),
            (
                Error::new(ErrorKind::Auth, "NOAUTH Authentication required."),
                RedisError::Final(StoreError::ErrorReply),
            ),
            (
                Error::new(ErrorKind::Cluster, "CLUSTERDOWN Hash slot not served"),
                RedisError::Final(StoreError::ConnectionLost),
            ),
            (
                Error::new(ErrorKind::IO, "Connection closed."),
                RedisError::Final(StoreError::ConnectionLost),
            ),
            (
                unknown("Too many failed write attempts."),
                RedisError::Final(StoreError::ConnectionLost),
            ),
            (unknown(""), RedisError::Final(StoreError::ConnectionLost)),
            (
                Error::new(ErrorKind::Canceled, "Connection closed unexpectedly."),
                RedisError::Final(StoreError::ConnectionLost),
            ),
            (
                unknown("NOPERM this user has no permissions script: 2c, on @user_script:9."),
                RedisError::Final(StoreError::InvalidReply),
            ),
            (
                unknown("NOPERM this user has no permissions to run the 'evalsha' command"),
                RedisError::Final(StoreError::ErrorReply),
            ),
            (
                Error::new(ErrorKind::Parse, "Could not convert"),
                RedisError::Final(StoreError::InvalidReply),
            ),
        ];
        for (error, class) in table {
            assert_eq!(RedisError::classify(&error), class, "{error}");
        }
    }
}
