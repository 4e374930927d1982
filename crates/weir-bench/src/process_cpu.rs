//! The CPU time that a process has used, from Linux' `/proc`.

use std::time::Duration;

/// The CPU time of this process; `None` without `/proc`.
pub(crate) fn of_this_process() -> Option<Duration> {
    parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// User plus system time in a line of `/proc/PID/stat`.
fn parse(line: &str) -> Option<Duration> {
    // The second field is the name, in parentheses, with any characters. User time is the twelfth
    // after it.
    let (_, fields) = line.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    // Linux reports hundredths of a second (USER_HZ) on every machine.
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_after_any_process_name() {
        let line = "7 (a) b ) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 3 0 99";
        assert_eq!(parse(line), Some(Duration::from_millis(1750)));
        assert_eq!(parse("7 (a) S 1"), None);
    }
}
