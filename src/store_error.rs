//! Store errors: why a store gave no outcome, and whether the step may have been applied.

/// Why a store could not answer. The rule's `on_error` decides instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError {
    /// No room for a new counter: all that could be evicted hold clients at their limit.
    #[error("the memory store is full (store.max_counters) of counters at their limit")]
    Full,
    /// No answer within the deadline. The step may have been applied, or may be later.
    #[error("the store did not answer in time (store.timeout, or the caller's own deadline)")]
    Timeout,
    /// The breaker is open: the store was not asked.
    #[error("the store has stopped answering and is left alone for a moment")]
    Open,
    /// Too many calls are in flight: the store was not asked.
    #[error("too many calls to the store are in flight")]
    Busy,
    /// There is no connection: the store was not asked.
    #[error("there is no connection to the store")]
    Unreachable,
    /// The connection was lost after the step was sent. It may have been applied.
    #[error("the connection to the store was lost before it answered")]
    Lost,
    /// The store answered with an error. The step was not applied.
    #[error("the store refused: the log has its words")]
    Refused,
    /// The store answered something else than an outcome. The step may have been applied.
    #[error("the store's answer was not understood: is another version or program using its keys?")]
    Reply,
}

impl StoreError {
    /// Every error, for metrics that count them apart.
    pub const ALL: [StoreError; 8] = [
        StoreError::Full,
        StoreError::Timeout,
        StoreError::Open,
        StoreError::Busy,
        StoreError::Unreachable,
        StoreError::Lost,
        StoreError::Refused,
        StoreError::Reply,
    ];

    /// The step may have been applied, or may be yet. Otherwise it certainly was not and will not be.
    pub const fn may_have_run(self) -> bool {
        matches!(self, StoreError::Timeout | StoreError::Lost | StoreError::Reply)
    }

    /// One word for labels and headers.
    pub const fn word(self) -> &'static str {
        match self {
            StoreError::Full => "full",
            StoreError::Timeout => "timeout",
            StoreError::Open => "open",
            StoreError::Busy => "busy",
            StoreError::Unreachable => "unreachable",
            StoreError::Lost => "lost",
            StoreError::Refused => "refused",
            StoreError::Reply => "reply",
        }
    }
}
