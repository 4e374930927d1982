//! Whether one node runs steps by the functions of the library or by scripts. A node may lack
//! functions, or the user the rights to them.

use std::sync::atomic::{AtomicU8, Ordering};

use super::error::CallError;
use super::script;

/// How a node is asked to run steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallForm {
    /// `FCALL` of a function of the library.
    Function,
    /// `EVALSHA` of a script.
    Script,
}

/// What is known about the functions of a node. Every connection to it shares this.
#[derive(Debug)]
pub(super) struct FunctionUse {
    /// The setting `redis.functions`.
    allowed: bool,
    /// One of the constants below.
    state: AtomicU8,
}

/// The node was not asked yet, so scripts are called.
const UNKNOWN: u8 = 0;
/// The node ran a function.
const AVAILABLE: u8 = 1;
/// The node refused to run a function.
const REFUSED: u8 = 2;

impl FunctionUse {
    /// For a node that was not asked yet. `allowed` is the setting `redis.functions`.
    pub(super) fn new(allowed: bool) -> FunctionUse {
        FunctionUse { allowed, state: AtomicU8::new(UNKNOWN) }
    }

    /// How to run steps now.
    pub(super) fn form(&self) -> CallForm {
        match self.state.load(Ordering::Relaxed) {
            AVAILABLE => CallForm::Function,
            _ => CallForm::Script,
        }
    }

    /// Whether the settings allow functions.
    pub(super) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Records whether the node at `address` ran a function. Logs a change.
    pub(super) fn record(&self, address: &str, ran: Result<(), CallError>) {
        let state = match &ran {
            Ok(()) => AVAILABLE,
            Err(CallError::Reply(_) | CallError::Unexpected) => REFUSED,
            // A connection that fails says nothing about functions.
            Err(CallError::NotSent | CallError::Busy | CallError::Lost) => return,
        };
        if self.state.swap(state, Ordering::Relaxed) == state {
            return;
        }
        match ran {
            Ok(()) => {
                let library = &script::library().name;
                tracing::info!(node = %address, %library, "Redis runs functions");
            }
            Err(error) => {
                tracing::warn!(node = %address, %error, "Redis runs no functions: uses scripts");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_used_after_the_node_ran_one() {
        let functions = FunctionUse::new(true);
        let refused = || Err(CallError::Reply("NOPERM".into()));
        let table = [
            (Err(CallError::Lost), CallForm::Script),
            (Ok(()), CallForm::Function),
            (Err(CallError::Lost), CallForm::Function),
            (refused(), CallForm::Script),
            (Err(CallError::NotSent), CallForm::Script),
            (Ok(()), CallForm::Function),
        ];
        assert_eq!((functions.is_allowed(), functions.form()), (true, CallForm::Script));
        for (ran, form) in table {
            functions.record("a:1", ran.clone());
            assert_eq!(functions.form(), form, "{ran:?}");
        }
    }
}
