//! Why an HTTP server gave no plans, with what to do.

use std::time::Duration;

use crate::plan_sources::PlanSourceError;

/// Why a request for plans had no answer with plans.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HttpFailure {
    /// No connection, or a connection that was lost.
    #[error("plans.url does not answer: {0}; check the address and the server")]
    Unreachable(String),
    /// No whole answer within the timeout.
    #[error("plans.url did not answer within {0:?}; check the server, or raise plans.timeout")]
    Late(Duration),
    /// A redirect, which is not followed: the token must go to no other server.
    #[error("plans.url answered with a redirect (status {0}); set it to the final address")]
    Redirect(u16),
    /// The server does not accept the token.
    #[error("plans.url answered with the status {0}; check plans.token_file")]
    Refused(u16),
    /// Another status than 200 and 304.
    #[error("plans.url answered with the status {0}, not 200; check the server")]
    Status(u16),
    /// A body over `plans.max_bytes`.
    #[error("the answer of plans.url has more than {0} bytes; raise plans.max_bytes")]
    TooLarge(usize),
    /// The file with the token cannot be used.
    #[error("plans.token_file: {0}")]
    Token(String),
}

impl HttpFailure {
    /// The failure of a status other than 200 and 304.
    pub(super) fn of_status(status: u16) -> HttpFailure {
        match status {
            300..=303 | 305..=399 => HttpFailure::Redirect(status),
            401 | 403 => HttpFailure::Refused(status),
            _ => HttpFailure::Status(status),
        }
    }

    /// This failure as a problem of the settings.
    pub(super) fn into_setting(self) -> PlanSourceError {
        PlanSourceError::Settings(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_says_what_to_do() {
        for (status, fix) in [
            (301, "final address"),
            (307, "final address"),
            (401, "plans.token_file"),
            (403, "plans.token_file"),
            (404, "check the server"),
            (204, "check the server"),
            (304, "check the server"),
            (503, "check the server"),
        ] {
            let text = HttpFailure::of_status(status).to_string();
            assert!(text.contains(&status.to_string()) && text.contains(fix), "{text}");
        }
    }
}
