//! An alarm that wakes a task within microseconds of an instant.
//!
//! tokio's timers have a granularity of a millisecond, which is many times the latency that is to
//! be measured. Linux has timers that are files; elsewhere the run tells how late it sent.

use std::io;
use std::time::Instant;

#[cfg(target_os = "linux")]
pub(super) use precise::Alarm;

#[cfg(target_os = "linux")]
mod precise {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::net::unix::pipe::Receiver;

    use super::{Instant, io};

    const ZERO: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    /// A timer of the kernel. It is read as a pipe is: tokio waits for any file behind that type.
    #[derive(Debug)]
    pub(crate) struct Alarm(Receiver);

    impl Alarm {
        /// An alarm on the runtime of the caller.
        pub(crate) fn new() -> io::Result<Alarm> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            Ok(Alarm(Receiver::from_owned_fd_unchecked(timer)?))
        }

        /// Returns at `due`, or at once when that is past.
        pub(crate) async fn until(&self, due: Instant) -> io::Result<()> {
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
                // The number of times that it rang.
                match self.0.try_read(&mut [0; 8]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read.map(|_| ()),
                }
            }
        }
    }
}

/// A timer of the runtime, a millisecond coarse.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        Ok(Alarm)
    }

    pub(super) async fn until(&self, due: Instant) -> io::Result<()> {
        tokio::time::sleep_until(due.into()).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_never_rings_early_and_can_be_set_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let alarm = Alarm::new().unwrap();
            for micros in [0, 50, 300, 2_000] {
                let due = Instant::now() + Duration::from_micros(micros);
                alarm.until(due).await.unwrap();
                assert!(Instant::now() >= due, "{micros} us");
            }
        });
    }
}
