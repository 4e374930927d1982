//! A timer that wakes a task within microseconds of an instant.
//!
//! tokio's timers have a granularity of 1 ms, many times the latencies to be measured. On Linux
//! this is a `timerfd`. Elsewhere tokio's timer is used, and the report shows how late calls were
//! sent.

use std::io;
use std::time::Instant;

#[cfg(target_os = "linux")]
pub(crate) use timerfd::PreciseTimer;

#[cfg(target_os = "linux")]
mod timerfd {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::net::unix::pipe::Receiver;

    use super::{Instant, io};

    const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    /// A kernel timer. It is read as a pipe, because tokio polls any file descriptor behind that
    /// type.
    #[derive(Debug)]
    pub(crate) struct PreciseTimer(Receiver);

    impl PreciseTimer {
        /// A timer on the runtime of the caller.
        pub(crate) fn new() -> io::Result<PreciseTimer> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            Ok(PreciseTimer(Receiver::from_owned_fd_unchecked(timer)?))
        }

        /// Returns at `due`, or at once when `due` is past.
        pub(crate) async fn sleep_until(&self, due: Instant) -> io::Result<()> {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            let once = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            let when = Itimerspec { it_interval: ZERO, it_value: once };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &when)?;
            loop {
                self.0.readable().await?;
                // The eight bytes are the number of expirations.
                match self.0.try_read(&mut [0; 8]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read.map(|_| ()),
                }
            }
        }
    }
}

/// A timer of the runtime, with a granularity of 1 ms.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct PreciseTimer;

#[cfg(not(target_os = "linux"))]
impl PreciseTimer {
    pub(crate) fn new() -> io::Result<PreciseTimer> {
        Ok(PreciseTimer)
    }

    pub(crate) async fn sleep_until(&self, due: Instant) -> io::Result<()> {
        tokio::time::sleep_until(due.into()).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timer_is_never_early_and_can_be_reused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let timer = PreciseTimer::new().unwrap();
            for micros in [0, 50, 300, 2_000] {
                let due = Instant::now() + Duration::from_micros(micros);
                timer.sleep_until(due).await.unwrap();
                assert!(Instant::now() >= due, "{micros} us");
            }
        });
    }
}
