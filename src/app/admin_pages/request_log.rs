//! The page `/log`: which requests get lines in the log, and the captures.

use serde_json::{Value, json};

use super::rfc_3339;
use crate::request_log::{CaptureProblem, CaptureRequest, LogCapture, RequestLog};
use crate::rules::RuleSet;
use crate::server::ChangeError;
use crate::settings::LineValues;
use crate::time::Micros;

/// `GET /log`.
pub(super) fn page(log: &RequestLog, now: Micros) -> Value {
    let (settings, metrics) = (log.settings(), log.metrics());
    let values = match settings.request_values {
        LineValues::Plain => "plain",
        LineValues::Hashed => "hashed",
        LineValues::None => "none",
    };
    let captures = log.captures();
    let active = captures.iter().filter(|capture| capture.is_active(now));
    json!({
        "requests": settings.requests,
        "sample": settings.requests_sample,
        "per_second": settings.requests_per_second,
        "values": values,
        "captures": active.map(shown).collect::<Vec<Value>>(),
        "lines": metrics.lines.get(),
        "left_out": metrics.left_out.get(),
    })
}

/// `PUT /log`.
pub(super) fn begin(
    log: &RequestLog,
    body: &[u8],
    rules: &RuleSet,
    by: &str,
    now: Micros,
) -> Result<Value, ChangeError> {
    let begun = CaptureRequest::from_json(body)
        .and_then(|request| log.begin(request, rules, by, now))
        .map_err(|problem| match problem {
            CaptureProblem::Invalid(why) => ChangeError::Invalid(why),
            CaptureProblem::Unknown(why) => ChangeError::NotFound(why),
            CaptureProblem::Conflict(why) => ChangeError::Conflict(why),
        });
    let (capture, replaces) = begun?;
    Ok(json!({ "capture": shown(&capture), "replaces": replaces, "scope": "this_process" }))
}

/// `DELETE /log`.
pub(super) fn end(log: &RequestLog, by: &str, now: Micros) -> Value {
    let ended: Vec<Value> = log.end_all(by, now).iter().map(shown).collect();
    json!({ "ended": ended, "scope": "this_process" })
}

/// A capture. Fields without a value are missing.
fn shown(capture: &LogCapture) -> Value {
    let mut shown = json!({
        "requests": capture.requests,
        "sample": capture.sample,
        "began": rfc_3339(capture.began),
        "until": rfc_3339(capture.until),
        "by": capture.by,
    });
    if let Some(domain) = &capture.domain {
        shown["domain"] = json!(domain);
    }
    if let Some(rule) = &capture.rule {
        shown["rule"] = json!(rule.name);
        if rule.selector != rule.name {
            shown["selector"] = json!(rule.selector);
        }
    }
    shown
}
