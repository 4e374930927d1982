//! What an error of a call means: whether the call ran, and what can still be done about it.
//!
//! Redis says why it refused in the first word of its answer. All else comes from the connection,
//! and then nobody knows whether the call ran.

use fred::error::{Error, ErrorKind};

use crate::store::StoreError;

/// What can be done about a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It did not run: the node does not know the script.
    NoScript,
    /// It did not run: the slot has another owner.
    Moved(Elsewhere),
    /// It did not run: the slot is leaving, and this counter is no longer or not yet here.
    Ask(Elsewhere),
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
pub(super) struct Elsewhere {
    /// The slot.
    pub(super) slot: u16,
    /// The host; empty means the one that was asked.
    pub(super) host: String,
    /// The port.
    pub(super) port: u16,
}

impl Fault {
    /// What `error` means.
    pub(super) fn of(error: &Error) -> Fault {
        let text = error.details();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "NOSCRIPT" => Fault::NoScript,
            "MOVED" => Elsewhere::read(rest).map_or(Fault::Final(StoreError::Reply), Fault::Moved),
            "ASK" => Elsewhere::read(rest).map_or(Fault::Final(StoreError::Reply), Fault::Ask),
            "TRYAGAIN" => Fault::TryAgain,
            "LOADING" => Fault::Loading,
            "OOM" => Fault::Memory,
            "READONLY" => Fault::ReadOnly,
            // Raised by a script at work, which may have written by then.
            "ERR" if rest.contains("user_script:") => Fault::Final(StoreError::Reply),
            _ => Fault::Final(class(error.kind(), word)),
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

impl Elsewhere {
    /// Reads `<slot> <host>:<port>`; a host of IPv6 has colons of its own.
    fn read(text: &str) -> Option<Elsewhere> {
        let (slot, address) = text.trim().split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        // Since Redis 7 a node that does not know its host name answers `?`.
        let host = if host == "?" { "" } else { host };
        let slot: u16 = slot.parse().ok().filter(|slot| *slot < 16_384)?;
        Some(Elsewhere { slot, host: host.to_owned(), port: port.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_told_from_a_lost_connection() {
        let elsewhere = |slot, host: &str, port| Elsewhere { slot, host: host.into(), port };
        let unknown = |text: &'static str| Error::new(ErrorKind::Unknown, text);
        let table = [
            (unknown("NOSCRIPT No matching script."), Fault::NoScript),
            (unknown("MOVED 3999 10.0.0.1:6381"), Fault::Moved(elsewhere(3999, "10.0.0.1", 6381))),
            (unknown("MOVED 1 fe80::1:6381"), Fault::Moved(elsewhere(1, "fe80::1", 6381))),
            (unknown("ASK 16383 :7000"), Fault::Ask(elsewhere(16_383, "", 7000))),
            (unknown("ASK 5 ?:7000"), Fault::Ask(elsewhere(5, "", 7000))),
            (unknown("MOVED 16384 a:1"), Fault::Final(StoreError::Reply)),
            (unknown("MOVED"), Fault::Final(StoreError::Reply)),
            (unknown("TRYAGAIN Multiple keys"), Fault::TryAgain),
            (unknown("READONLY You can't write"), Fault::ReadOnly),
            (unknown("LOADING Redis is loading"), Fault::Loading),
            (unknown("OOM command not allowed"), Fault::Memory),
            (unknown("ERR unknown command"), Fault::Final(StoreError::Refused)),
            (
                unknown("ERR user_script:9: data string too short script: 2c, on @user_script:9."),
                Fault::Final(StoreError::Reply),
            ),
            (
                Error::new(ErrorKind::Auth, "NOAUTH Authentication required."),
                Fault::Final(StoreError::Refused),
            ),
            (
                Error::new(ErrorKind::Cluster, "CLUSTERDOWN Hash slot not served"),
                Fault::Final(StoreError::Lost),
            ),
            (Error::new(ErrorKind::IO, "Connection closed."), Fault::Final(StoreError::Lost)),
            (unknown("Too many failed write attempts."), Fault::Final(StoreError::Lost)),
            (unknown(""), Fault::Final(StoreError::Lost)),
            (
                Error::new(ErrorKind::Canceled, "Connection closed unexpectedly."),
                Fault::Final(StoreError::Unreachable),
            ),
            (Error::new(ErrorKind::Parse, "Could not convert"), Fault::Final(StoreError::Reply)),
        ];
        for (error, fault) in table {
            assert_eq!(Fault::of(&error), fault, "{error}");
        }
    }
}
