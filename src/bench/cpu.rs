//! The CPU time that a process has used, as Linux accounts it.

use std::time::Duration;

/// Of this process. None where there is no `/proc`.
pub(super) fn of_this_process() -> Option<Duration> {
    parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// User and system time of a line of `/proc/PID/stat`.
fn parse(line: &str) -> Option<Duration> {
    // The name is the second field and may hold anything; the twelfth after it is user time.
    let (_, fields) = line.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    // What Linux shows is in hundredths of a second on every machine.
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_found_after_any_name() {
        let line = "7 (a) b ) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 3 0 99";
        assert_eq!(parse(line), Some(Duration::from_millis(1750)));
        assert_eq!(parse("7 (a) S 1"), None);
    }
}
