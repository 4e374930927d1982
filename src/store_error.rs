//! Store errors: why a store returned no outcome, and whether the step may have been applied.

/// The reason why a store returned no outcome. The rule's `on_error` decides instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError {
    /// No room for a new counter: every counter that was considered for eviction is at its limit.
    #[error("the memory store is full of counters at their limit; raise store.max_counters")]
    MemoryFull,
    /// No outcome within the timeout. The step may have been applied, or may be later.
    #[error(
        "the store did not reply in time; check its latency, or raise store.timeout or the \
         timeout of the caller"
    )]
    Timeout,
    /// The breaker is open. The step was not sent.
    #[error(
        "the breaker of the Redis node is open after timeouts or lost connections; check that node"
    )]
    BreakerOpen,
    /// Too many calls are in flight. The step was not sent.
    #[error("too many steps wait for the Redis node; check its latency, or add a node")]
    Busy,
    /// There is no connection. The step was not sent.
    #[error("there is no connection to Redis; check redis.url and the network")]
    Unreachable,
    /// The connection was lost after the step was sent. The step may have been applied.
    #[error("the connection to Redis was lost before the reply; check the node's log")]
    ConnectionLost,
    /// The store returned an error. The step was not applied.
    #[error("Redis returned an error; weir's log has its text")]
    ErrorReply,
    /// The reply is not an outcome. The step may have been applied.
    #[error(
        "the reply of the store is invalid; check whether another program or version of weir \
         writes `weir:*` keys"
    )]
    InvalidReply,
    /// The call may not wait for the store any longer. The step may have been applied, or may be
    /// later.
    #[error(
        "the calls that wait for the store hold too much memory; raise grpc.max_client_memory, or \
         find the client that sends them"
    )]
    ClientMemoryFull,
}

impl StoreError {
    /// Every error, in the order in which metrics count them.
    pub const ALL: [StoreError; 9] = [
        StoreError::MemoryFull,
        StoreError::Timeout,
        StoreError::BreakerOpen,
        StoreError::Busy,
        StoreError::Unreachable,
        StoreError::ConnectionLost,
        StoreError::ErrorReply,
        StoreError::InvalidReply,
        StoreError::ClientMemoryFull,
    ];

    /// Whether the step may have been applied, or may still be applied later. If false, it was not
    /// and never will be.
    pub const fn may_have_run(self) -> bool {
        matches!(
            self,
            StoreError::Timeout
                | StoreError::ConnectionLost
                | StoreError::InvalidReply
                | StoreError::ClientMemoryFull
        )
    }

    /// The name of the error in metric labels and headers.
    pub const fn name(self) -> &'static str {
        match self {
            StoreError::MemoryFull => "memory_full",
            StoreError::Timeout => "timeout",
            StoreError::BreakerOpen => "breaker_open",
            StoreError::Busy => "busy",
            StoreError::Unreachable => "unreachable",
            StoreError::ConnectionLost => "connection_lost",
            StoreError::ErrorReply => "error_reply",
            StoreError::InvalidReply => "invalid_reply",
            StoreError::ClientMemoryFull => "client_memory_full",
        }
    }
}
