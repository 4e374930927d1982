//! What an error of a call means: whether the call ran, and what can still be done about it.
//!
//! Redis says why it refused in the first word of its answer. All else comes from the connection,
//! and then nobody knows whether the call ran.

use fred::error::{Error, ErrorKind};

use crate::store::StoreError;

/// What can be done about a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedisError {
    /// It did not run: the node does not know the script.
    NoScript,
    /// It did not run: the slot has another owner.
    Moved(Redirect),
    /// It did not run: the slot is leaving, and this counter is no longer or not yet here.
    Ask(Redirect),
    /// It did not run: the slot is between two nodes for a moment.
    TryAgain,
    /// It did not run: the node has started, and still reads its data.
    Loading,
    /// It did not run: there is no memory for what it writes.
    Memory,
    /// It did not run, and will not on this node: it follows another one now.
    ReadOnly,
    /// There will be no answer.
    Final(StoreError),
}

/// Where a cluster says that a slot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    /// The slot.
    pub(super) slot: u16,
    /// The host; empty means the one that was asked.
    pub(super) host: String,
    /// The port.
    pub(super) port: u16,
}

impl RedisError {
    /// What `error` means.
    pub(super) fn of(error: &Error) -> RedisError {
        let text = error.details();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "NOSCRIPT" => RedisError::NoScript,
            "MOVED" => {
                Redirect::read(rest).map_or(RedisError::Final(StoreError::Reply), RedisError::Moved)
            }
            "ASK" => {
                Redirect::read(rest).map_or(RedisError::Final(StoreError::Reply), RedisError::Ask)
            }
            "TRYAGAIN" => RedisError::TryAgain,
            "LOADING" => RedisError::Loading,
            "OOM" => RedisError::Memory,
            "READONLY" => RedisError::ReadOnly,
            // Raised by a script at work, which may have written by then.
            "ERR" if rest.contains("user_script:") => RedisError::Final(StoreError::Reply),
            _ => RedisError::Final(class(error.kind(), word)),
        }
    }
}

/// Errors that leave no way to go on.
fn class(kind: &ErrorKind, word: &str) -> StoreError {
    match kind {
        // fred drops a connection that says CLUSTERDOWN and gives this answer to all that was in
        // flight on it, so a call that is answered so may have run.
        ErrorKind::Cluster => StoreError::Lost,
        // Refused by the client itself before anything was sent.
        ErrorKind::Canceled | ErrorKind::Backpressure | ErrorKind::Routing => {
            StoreError::Unreachable
        }
        ErrorKind::Timeout => StoreError::Timeout,
        ErrorKind::Parse | ErrorKind::NotFound | ErrorKind::Protocol => StoreError::Reply,
        // An error reply starts with a word in capitals: NOPERM, NOAUTH, ERR, ...
        _ if word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            StoreError::Refused
        }
        _ => StoreError::Lost,
    }
}

impl Redirect {
    /// Reads `<slot> <host>:<port>`; a host of IPv6 has colons of its own.
    fn read(text: &str) -> Option<Redirect> {
        let (slot, address) = text.trim().split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        // Since Redis 7 a node that does not know its host name answers `?`.
        let host = if host == "?" { "" } else { host };
        let slot: u16 = slot.parse().ok().filter(|slot| *slot < 16_384)?;
        Some(Redirect { slot, host: host.to_owned(), port: port.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_told_from_a_lost_connection() {
        let redirect = |slot, host: &str, port| Redirect { slot, host: host.into(), port };
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
            (unknown("MOVED 16384 a:1"), RedisError::Final(StoreError::Reply)),
            (unknown("MOVED"), RedisError::Final(StoreError::Reply)),
            (unknown("TRYAGAIN Multiple keys"), RedisError::TryAgain),
            (unknown("READONLY You can't write"), RedisError::ReadOnly),
            (unknown("LOADING Redis is loading"), RedisError::Loading),
            (unknown("OOM command not allowed"), RedisError::Memory),
            (unknown("ERR unknown command"), RedisError::Final(StoreError::Refused)),
            (
                unknown("ERR user_script:9: data string too short script: 2c, on @user_script:9."),
                RedisError::Final(StoreError::Reply),
            ),
            (
                Error::new(ErrorKind::Auth, "NOAUTH Authentication required."),
                RedisError::Final(StoreError::Refused),
            ),
            (
                Error::new(ErrorKind::Cluster, "CLUSTERDOWN Hash slot not served"),
                RedisError::Final(StoreError::Lost),
            ),
            (Error::new(ErrorKind::IO, "Connection closed."), RedisError::Final(StoreError::Lost)),
            (unknown("Too many failed write attempts."), RedisError::Final(StoreError::Lost)),
            (unknown(""), RedisError::Final(StoreError::Lost)),
            (
                Error::new(ErrorKind::Canceled, "Connection closed unexpectedly."),
                RedisError::Final(StoreError::Unreachable),
            ),
            (
                Error::new(ErrorKind::Parse, "Could not convert"),
                RedisError::Final(StoreError::Reply),
            ),
        ];
        for (error, fault) in table {
            assert_eq!(RedisError::of(&error), fault, "{error}");
        }
    }
}
