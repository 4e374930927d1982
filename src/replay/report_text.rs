//! Writes a report as text for people.

use std::fmt::{self, Display, Formatter};

use super::report::{CounterTotals, ReplayReport};
use crate::escape::{excerpt, one_line};

/// Longest text of a descriptor, in characters. The JSON form has the whole text.
const DESCRIPTOR_CHARS_MAX: usize = 200;

/// The report in several lines, without a newline at the end.
impl Display for ReplayReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let calls = &self.calls;
        write!(f, "calls       {}, hits {}", calls.replayed, calls.hits)?;
        if let (Some(first), Some(last)) = (self.first_at, self.last_at) {
            write!(f, ", from {} to {}", rfc_3339(first), rfc_3339(last))?;
        }
        write!(
            f,
            "\ndenied      {} by the old rules, {} by the new rules, {} by both",
            calls.denied_by_old, calls.denied_by_new, calls.denied_by_both
        )?;
        let difference = calls.difference;
        write!(
            f,
            "\ndifference  {} more and {} fewer calls, {} more and {} fewer hits",
            difference.more, difference.fewer, difference.more_hits, difference.fewer_hits
        )?;
        self.write_recorded(f)?;
        self.write_lines(f)?;
        write_counters(f, "old", &self.old_counters)?;
        write_counters(f, "new", &self.new_counters)?;
        self.write_rules(f)?;
        self.write_descriptors(f)
    }
}

impl ReplayReport {
    fn write_recorded(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let recorded = &self.recorded;
        if recorded.calls == 0 {
            return Ok(());
        }
        let different = recorded.denied_by_old_only + recorded.denied_in_recording_only;
        write!(
            f,
            "\nrecorded    {} of {} calls as by the old rules, {} denied by them only, {} in the \
             recording only",
            recorded.calls - different,
            recorded.calls,
            recorded.denied_by_old_only,
            recorded.denied_in_recording_only
        )
    }

    /// The lines that are no calls, and the order of the others; nothing if all lines are good.
    fn write_lines(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let lines = &self.lines;
        if lines.bad > 0 {
            write!(f, "\nbad lines   {} of {}; the first:", lines.bad, lines.read)?;
        }
        for bad in &lines.first_bad {
            write!(f, "\n            line {}: {}", bad.line, bad.problem)?;
        }
        if lines.other_domains > 0 {
            write!(f, "\nleft out    calls of other domains: {}", lines.other_domains)?;
        }
        if lines.without_descriptors > 0 {
            write!(
                f,
                "\nleft out    requests without a descriptor: {}",
                lines.without_descriptors
            )?;
        }
        if lines.out_of_order > 0 {
            let longest = lines.out_of_order_micros_max as f64 / 1e6;
            write!(
                f,
                "\nunsorted    {} calls, by at most {longest:.6} s; sort the lines by `at`",
                lines.out_of_order
            )?;
        }
        Ok(())
    }

    fn write_rules(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = ["more", "fewer", "old denied", "old all", "new denied", "new all"];
        let rows = self.rules.iter().map(|rule| {
            let (old, new) = (&rule.old, &rule.new);
            let difference = &rule.difference;
            let numbers = [
                difference.more,
                difference.fewer,
                old.denied,
                old.descriptors,
                new.denied,
                new.descriptors,
            ];
            (numbers, named(&rule.domain, &one_line(&rule.rule)))
        });
        write_table(f, header, "rule", &rows.collect::<Vec<_>>())?;
        let left_out = self.rules_used - self.rules.len();
        if left_out > 0 {
            write!(f, "\nnot shown: {left_out} of {} rules; raise --top", self.rules_used)?;
        }
        Ok(())
    }

    fn write_descriptors(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = ["more", "fewer", "more hits", "fewer hits"];
        let rows = self.descriptors.iter().map(|one| {
            let difference = &one.difference;
            let numbers =
                [difference.more, difference.fewer, difference.more_hits, difference.fewer_hits];
            (numbers, named(&one.domain, &excerpt(&one.descriptor, DESCRIPTOR_CHARS_MAX)))
        });
        write_table(f, header, "descriptor", &rows.collect::<Vec<_>>())?;
        let left_out = self.descriptors_tracked - self.descriptors.len();
        if left_out > 0 {
            let tracked = self.descriptors_tracked;
            write!(f, "\nnot shown: {left_out} of {tracked} descriptors; raise --top")?;
        }
        let untracked = self.descriptors_untracked;
        if untracked.times() > 0 {
            write!(
                f,
                "\nin descriptors that are not counted one by one: {} more and {} fewer",
                untracked.more, untracked.fewer
            )?;
        }
        Ok(())
    }
}

/// What makes the counters of one rule set inexact; nothing if they are exact.
fn write_counters(f: &mut Formatter<'_>, rules: &str, counters: &CounterTotals) -> fmt::Result {
    let CounterTotals { evicted, fallbacks, leases_without_end } = *counters;
    if evicted + fallbacks > 0 {
        write!(
            f,
            "\ncounters    {rules} rules: {evicted} evicted, {fallbacks} decided by the fallback; \
             raise store.max_counters"
        )?;
    }
    if leases_without_end > 0 {
        write!(
            f,
            "\nleases      {rules} rules: {leases_without_end} without an end in the recording"
        )?;
    }
    Ok(())
}

/// A name with its domain. Rows without a rule have no domain.
fn named(domain: &str, name: &str) -> String {
    match domain {
        "" => format!("({name})"),
        _ => format!("{}: {name}", excerpt(domain, DESCRIPTOR_CHARS_MAX)),
    }
}

/// Writes a table with a line between it and the text before. Nothing without rows.
fn write_table<const COLUMNS: usize>(
    f: &mut Formatter<'_>,
    header: [&str; COLUMNS],
    last: &str,
    rows: &[([u64; COLUMNS], String)],
) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let digits = |column: usize| {
        let largest = rows.iter().map(|(numbers, _)| numbers[column]).max().unwrap_or(0);
        largest.to_string().len().max(header[column].len())
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(digits);
    f.write_str("\n\n")?;
    for (text, width) in header.iter().zip(widths) {
        write!(f, "{text:>width$}  ")?;
    }
    f.write_str(last)?;
    for (numbers, name) in rows {
        f.write_str("\n")?;
        for (number, width) in numbers.iter().zip(widths) {
            write!(f, "{number:>width$}  ")?;
        }
        f.write_str(name)?;
    }
    Ok(())
}

/// An instant in microseconds since 1970, to the second.
fn rfc_3339(micros: u64) -> String {
    let seconds = i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX);
    prost_types::Timestamp { seconds, nanos: 0 }.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::call_reader::LineTotals;
    use super::super::differences::{DescriptorDifference, Difference};
    use super::super::line_problem::BadLine;
    use super::super::report::{CallTotals, RecordedTotals, RuleReport, RuleTotals};
    use super::*;

    fn empty() -> ReplayReport {
        ReplayReport {
            calls: CallTotals::default(),
            recorded: RecordedTotals::default(),
            first_at: None,
            last_at: None,
            lines: LineTotals::default(),
            old_counters: CounterTotals::default(),
            new_counters: CounterTotals::default(),
            rules_used: 0,
            rules: Vec::new(),
            descriptors_tracked: 0,
            descriptors: Vec::new(),
            descriptors_untracked: Difference::default(),
        }
    }

    #[test]
    fn a_report_without_differences_is_short() {
        let lines = [
            "calls       0, hits 0",
            "denied      0 by the old rules, 0 by the new rules, 0 by both",
            "difference  0 more and 0 fewer calls, 0 more and 0 fewer hits",
        ];
        assert_eq!(empty().to_string(), lines.join("\n"));
    }

    #[test]
    fn every_part_of_a_report_is_written() {
        let difference = Difference { more: 1, fewer: 12, more_hits: 3, fewer_hits: 4_000_000_000 };
        let totals =
            |denied, descriptors| RuleTotals { denied, descriptors, hits: 9, denied_hits: 2 };
        let report = ReplayReport {
            calls: CallTotals { replayed: 20, hits: 30, difference, ..CallTotals::default() },
            recorded: RecordedTotals {
                calls: 20,
                denied_by_old_only: 1,
                denied_in_recording_only: 2,
                descriptors: 25,
                descriptors_different: 3,
            },
            first_at: Some(1_772_366_400_999_999),
            last_at: Some(1_772_366_460_000_000),
            lines: LineTotals {
                read: 27,
                bad: 2,
                first_bad: vec![BadLine::new(3, "x\u{1b}"), BadLine::new(4, "y")],
                other_domains: 4,
                without_descriptors: 1,
                out_of_order: 2,
                out_of_order_micros_max: 1_200,
            },
            old_counters: CounterTotals { evicted: 5, ..CounterTotals::default() },
            new_counters: CounterTotals {
                fallbacks: 6,
                leases_without_end: 7,
                ..CounterTotals::default()
            },
            rules_used: 3,
            rules: vec![
                RuleReport {
                    domain: "shop".to_owned(),
                    rule: "per-user".to_owned(),
                    difference,
                    old: totals(12, 20),
                    new: totals(1, 20),
                },
                RuleReport {
                    domain: String::new(),
                    rule: "no rule".to_owned(),
                    difference: Difference::default(),
                    old: totals(0, 2),
                    new: totals(0, 2),
                },
            ],
            descriptors_tracked: 2,
            descriptors: vec![DescriptorDifference {
                domain: "shop".to_owned(),
                descriptor: "user=ann\n".to_owned(),
                difference,
            }],
            descriptors_untracked: Difference { more: 8, ..Difference::default() },
        };
        let expected = r"calls       20, hits 30, from 2026-03-01T12:00:00Z to 2026-03-01T12:01:00Z
denied      0 by the old rules, 0 by the new rules, 0 by both
difference  1 more and 12 fewer calls, 3 more and 4000000000 fewer hits
recorded    17 of 20 calls as by the old rules, 1 denied by them only, 2 in the recording only
bad lines   2 of 27; the first:
            line 3: x\u{1b}
            line 4: y
left out    calls of other domains: 4
left out    requests without a descriptor: 1
unsorted    2 calls, by at most 0.001200 s; sort the lines by `at`
counters    old rules: 5 evicted, 0 decided by the fallback; raise store.max_counters
counters    new rules: 0 evicted, 6 decided by the fallback; raise store.max_counters
leases      new rules: 7 without an end in the recording

more  fewer  old denied  old all  new denied  new all  rule
   1     12          12       20           1       20  shop: per-user
   0      0           0        2           0        2  (no rule)
not shown: 1 of 3 rules; raise --top

more  fewer  more hits  fewer hits  descriptor
   1     12          3  4000000000  shop: user=ann\n
not shown: 1 of 2 descriptors; raise --top
in descriptors that are not counted one by one: 8 more and 0 fewer";
        let text = report.to_string();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
    }
}
