//! The problems of limits that overlays have changed, without compiling their rules.

use std::sync::Arc;

use super::limit_reader::LimitReader;
use crate::rules::file::model::RawRateLimit;
use crate::rules::file::problem::{Report, RuleProblem};

/// The problems of the fields of a limit that do not depend on the rule. Fields may be missing.
pub(in crate::rules) fn field_problems(raw: &RawRateLimit, file: &Arc<str>) -> Vec<RuleProblem> {
    let mut report = Report::default();
    let mut limits = LimitReader { file, report: &mut report };
    limits.algorithm(raw.algorithm.as_ref());
    limits.calendars(raw);
    limits.mode(raw, None);
    limits.on_error(raw);
    limits.request_lines(raw);
    report.into_parts().0
}

/// The problems of the limit of a rule, whose path has `keys`.
pub(in crate::rules) fn limit_problems(
    raw: &RawRateLimit,
    keys: &[Arc<str>],
    file: &Arc<str>,
) -> Vec<RuleProblem> {
    let mut report = Report::default();
    let mut limits = LimitReader { file, report: &mut report };
    let fields = limits.limit(raw);
    limits.cost(raw, fields.limit.as_ref(), keys.iter().map(|key| &**key));
    report.into_parts().0
}
