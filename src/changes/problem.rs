//! Why a change was not made or ended.

use super::shared::SharedChangesError;
use crate::store_error::StoreError;

/// The reason why a change was not made or ended, with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeProblem {
    /// The request is wrong.
    Invalid(String),
    /// The domain, the rule or the change does not exist.
    Unknown(String),
    /// The request does not fit what exists.
    Conflict(String),
    /// The store does not answer.
    Store(String),
}

impl From<SharedChangesError> for ChangeProblem {
    fn from(error: SharedChangesError) -> ChangeProblem {
        let fix = match error {
            SharedChangesError::Store(error) if StoreError::may_have_run(error) => {
                "; the change was possibly stored, GET /changes shows it"
            }
            SharedChangesError::Store(_) | SharedChangesError::TooMany(_) => "",
        };
        ChangeProblem::Store(format!("temporary changes are kept in Redis: {error}{fix}"))
    }
}
