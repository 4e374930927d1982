//! Whether one node runs steps by the functions of the library or by scripts. A node may lack
//! functions, or the user the rights to them.

use std::sync::atomic::{AtomicU8, Ordering};

use super::error::{CallError, refuses_functions};
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

/// The node has not replied yet whether it runs functions, so scripts are called.
const UNKNOWN: u8 = 0;
/// The node ran a function.
const AVAILABLE: u8 = 1;
/// The node refused a function, or does not have them.
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

    /// Whether the node refused to run functions. It then does so until an operator changes it.
    pub(super) fn is_refused(&self) -> bool {
        self.state.load(Ordering::Relaxed) == REFUSED
    }

    /// Records whether the node at `address` ran a function. Logs a change.
    pub(super) fn record(&self, address: &str, ran: Result<(), CallError>) {
        let state = match &ran {
            Ok(()) => AVAILABLE,
            Err(error) if refuses_functions(error) => REFUSED,
            // Another error says nothing about later calls.
            Err(CallError::Reply(_)) => {
                let relaxed = Ordering::Relaxed;
                let _ = self.state.compare_exchange(AVAILABLE, UNKNOWN, relaxed, relaxed);
                return;
            }
            Err(_) => return,
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
                let node = address;
                tracing::warn!(%node, %error, "Redis cannot run functions: weir uses scripts");
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
        let reply = |text: &'static str| Err(CallError::Reply(text.into()));
        let table = [
            (Err(CallError::Lost), CallForm::Script, false),
            (Ok(()), CallForm::Function, false),
            (Err(CallError::Lost), CallForm::Function, false),
            (reply("NOPERM no permissions"), CallForm::Script, true),
            (Err(CallError::NotSent), CallForm::Script, true),
            (reply("LOADING Redis is loading"), CallForm::Script, true),
            (Ok(()), CallForm::Function, false),
            (reply("OOM command not allowed"), CallForm::Script, false),
            (reply("BUSY Redis is busy"), CallForm::Script, false),
            (reply("ERR unknown command 'FCALL'"), CallForm::Script, true),
            (Ok(()), CallForm::Function, false),
            (Err(CallError::Unexpected), CallForm::Script, true),
        ];
        assert_eq!((functions.is_allowed(), functions.form()), (true, CallForm::Script));
        for (ran, form, is_refused) in table {
            functions.record("a:1", ran.clone());
            assert_eq!((functions.form(), functions.is_refused()), (form, is_refused), "{ran:?}");
        }
    }
}
