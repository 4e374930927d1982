//! The reason for a reload.

/// Why rules are reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::app) enum Trigger {
    /// The files changed. A missing file is an error.
    FileChange,
    /// SIGHUP. A missing file removes its rules.
    Signal,
}
