//! Finds out whether a request gets a line, and about which of its descriptors.

use super::capture::LogCapture;
use crate::decision::{Code, Verdict};
use crate::descriptor::Request;
use crate::limit::RequestLines;
use crate::rules::RuleSet;
use crate::sampling::SampledShare;
use crate::time::Micros;

/// A request that gets a line, if the sample has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantedLine {
    /// The descriptor that the line is about.
    pub(super) index: usize,
    /// The share of such requests that get a line.
    pub(super) share: SampledShare,
}

/// Whether a request that `rules` decided at `at` gets a line. `None` if it does not.
///
/// A descriptor asks for a line by the field `log` of its rule, or by the setting if the rule has no
/// such field (`base`). `captures` ask for more lines. Of several descriptors that ask, the line is about the
/// most telling one, and the largest share applies.
pub(super) fn wanted(
    rules: &RuleSet,
    request: &Request<'_>,
    verdict: &Verdict,
    base: (RequestLines, SampledShare),
    captures: &[LogCapture],
    at: Micros,
) -> Option<WantedLine> {
    let mut found: Option<(u8, WantedLine)> = None;
    let is_denied = verdict.code == Code::OverLimit;
    for (index, status) in verdict.statuses.iter().enumerate() {
        let rule = status.reason.rule().and_then(|index| rules.rules().get(index));
        let is_denied = is_denied && status.code == Code::OverLimit;
        let (setting, share) = base;
        let of_rule = rule.and_then(|rule| rule.log).unwrap_or(setting);
        let of_rule = of_rule.has(is_denied).then_some(share);
        let asking = captures.iter().filter(|capture| {
            capture.is_active(at)
                && capture.requests.has(is_denied)
                && capture.is_about(request.domain, rule)
        });
        let shares = asking.map(LogCapture::share).chain(of_rule);
        let Some(share) = shares.max() else { continue };
        let rank = status.rank();
        found = Some(match found {
            None => (rank, WantedLine { index, share }),
            Some((least, line)) => {
                let share = line.share.max(share);
                match rank < least {
                    true => (rank, WantedLine { index, share }),
                    false => (least, WantedLine { share, ..line }),
                }
            }
        });
    }
    found.map(|(_, line)| line)
}
