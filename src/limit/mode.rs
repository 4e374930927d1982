//! The mode of a rule: how often its decisions call the shared store.

use crate::time::Micros;

/// How often a decision calls Redis. With the memory store it has no effect.
///
/// The bounds below hold while Redis decides. A fallback or a failover that loses writes may exceed
/// a limit by more. `docs/guides/modes.md` has all exceptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Redis decides every request that the over-limit cache does not deny. The limit is never
    /// exceeded.
    #[default]
    Exact,
    /// An instance draws hits ahead as credits, many per call. The limit is never exceeded. Requests
    /// may be denied early, by at most the unspent credits of other instances.
    Leased,
    /// Instances exchange counts at intervals. Requests are not denied early. The limit may be
    /// exceeded by at most the hits that the other instances allow in about one interval.
    Synced {
        /// The longest time until all instances have received a hit.
        interval: Micros,
    },
}

impl Mode {
    /// The name in rule files and headers.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Exact => "exact",
            Mode::Leased => "leased",
            Mode::Synced { .. } => "synced",
        }
    }
}
