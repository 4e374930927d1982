//! The offset between the local clock and that of another machine.

use super::Micros;

/// A remote clock minus the local clock, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockOffset(i64);

impl ClockOffset {
    /// An offset of `micros`, positive if the remote clock is ahead.
    pub const fn from_micros(micros: i64) -> ClockOffset {
        ClockOffset(micros)
    }

    /// The offset of a remote clock that shows `remote` when the local clock shows `local`. Saturates.
    pub fn between(local: Micros, remote: Micros) -> ClockOffset {
        let micros = i128::from(remote.0) - i128::from(local.0);
        let most = if micros < 0 { i64::MIN } else { i64::MAX };
        ClockOffset(i64::try_from(micros).unwrap_or(most))
    }

    /// The offset in microseconds.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The remote clock when the local clock shows `local`, at least the epoch.
    pub const fn remote(self, local: Micros) -> Micros {
        Micros(local.0.saturating_add_signed(self.0))
    }

    /// The local clock when the remote clock shows `remote`, at least the epoch.
    pub const fn local(self, remote: Micros) -> Micros {
        Micros(remote.0.saturating_add_signed(self.0.saturating_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_converts_both_ways() {
        for (local, remote) in [(5, 12), (12, 5), (7_200_000_000, 3), (4, 4)] {
            let (local, remote) = (Micros(local), Micros(remote));
            let offset = ClockOffset::between(local, remote);
            assert_eq!((offset.remote(local), offset.local(remote)), (remote, local));
        }
    }

    #[test]
    fn there_is_nothing_before_the_epoch() {
        assert_eq!(ClockOffset::from_micros(-6).remote(Micros(5)), Micros(0));
        assert_eq!(ClockOffset::from_micros(6).local(Micros(5)), Micros(0));
        let widest = ClockOffset::between(Micros(u64::MAX), Micros(0));
        assert_eq!((widest.micros(), widest.remote(Micros(7))), (i64::MIN, Micros(0)));
    }
}
