//! The reasons against an xDS response, as weir sends them.

use crate::escape::excerpt;

/// Most bytes of the reasons against one response. weir sends them in one message, and the control plane
/// logs them.
const REASONS_BYTES_MAX: usize = 4 << 10;

/// Longest reason, in characters: the name of a resource may be long.
const REASON_CHARS_MAX: usize = 1_000;

/// The first of `lines`, up to [`REASONS_BYTES_MAX`] in all, and the number of the others.
pub(super) fn bounded(lines: &[String]) -> Vec<String> {
    let short = |line: &String| excerpt(line, REASON_CHARS_MAX);
    let mut lines: Vec<String> = lines.iter().map(short).collect();
    let mut bytes = 0;
    let fits = lines.iter().take_while(|line| {
        bytes += line.len() + 1;
        bytes <= REASONS_BYTES_MAX
    });
    let listed = fits.count();
    let others = lines.len() - listed;
    if others > 0 {
        lines.truncate(listed);
        lines.push(format!("and {others} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_bounded() {
        let lines = |count: usize, length: usize| vec!["x".repeat(length); count];
        assert_eq!(bounded(&lines(3, 10)), lines(3, 10));
        assert_eq!(bounded(&[]), Vec::<String>::new());
        let all = bounded(&lines(5_000, 99));
        assert_eq!(all.len(), 41);
        assert_eq!(all[40], "and 4960 more");
        let long = bounded(&lines(1, 100_000));
        assert_eq!((long.len(), long[0].len()), (1, 1_003));
    }
}
