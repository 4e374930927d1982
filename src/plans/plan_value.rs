//! Reads the value of a limit in a plan, in the form that YAML and JSON share.

use std::borrow::Cow;

use super::book::{LIMITS_PER_PLAN_MAX, LimitNumbers, PlanNumbers, check_plan_name, shown};
use crate::limit::{HITS_END, TIERS_MAX, TierNumbers};
use crate::spelling::nearest;

/// The problem with a value, and the fix.
pub(super) type ValueFault = (String, &'static str);

/// A value of a plan.
pub(super) enum PlanValue<'a> {
    /// A number or a word without quotes.
    Plain(Cow<'a, str>),
    /// A text in quotes.
    Quoted(Cow<'a, str>),
    List(Vec<PlanValue<'a>>),
    Map(Vec<(Cow<'a, str>, PlanValue<'a>)>),
}

const NUMBER_HINT: &str = "write a whole number without quotes, such as 1000";

const TIER_HINT: &str = "write a number, `{ requests: 1000, burst: 2000 }`, or a list of these";

/// Reads the limits of one plan, each with its place. Reports every problem with its place.
pub(super) fn plan_numbers<'a, P: Copy>(
    limits: impl Iterator<Item = (P, &'a str, PlanValue<'a>)>,
    mut report: impl FnMut(P, String, &'static str),
) -> PlanNumbers {
    let mut numbers = PlanNumbers::default();
    for (place, name, value) in limits {
        if let Err(problem) = check_plan_name(name) {
            report(place, problem, "");
            continue;
        }
        if numbers.len() == LIMITS_PER_PLAN_MAX {
            let problem = format!("more than {LIMITS_PER_PLAN_MAX} limits in one plan");
            report(place, problem, "divide the plan");
            break;
        }
        match limit_numbers(&value) {
            Ok(read) => numbers.insert(name, read),
            Err((what, hint)) => {
                report(place, format!("limit `{}`: {what}", shown(name)), hint);
            }
        }
    }
    numbers
}

/// Reads the value of one limit: `unlimited`, the numbers of one tier, or a list of these.
fn limit_numbers(value: &PlanValue<'_>) -> Result<LimitNumbers, ValueFault> {
    match value {
        PlanValue::Plain(text) | PlanValue::Quoted(text) if text == "unlimited" => {
            Ok(LimitNumbers::Unlimited)
        }
        PlanValue::List(items) if items.is_empty() || items.len() > TIERS_MAX => {
            let what = format!("a list of {} tiers", items.len());
            Err((what, "write 1 to 16 items, one per tier of the rule"))
        }
        PlanValue::List(items) => {
            let tiers: Result<Box<[_]>, _> = items.iter().map(tier_numbers).collect();
            Ok(LimitNumbers::Tiers(tiers?))
        }
        one => Ok(LimitNumbers::Tiers(Box::new([tier_numbers(one)?]))),
    }
}

fn tier_numbers(value: &PlanValue<'_>) -> Result<TierNumbers, ValueFault> {
    match value {
        PlanValue::Map(fields) => tier_fields(fields),
        PlanValue::List(_) => Err(("a list inside a list".to_owned(), TIER_HINT)),
        one => Ok(TierNumbers { requests: number(one)?, burst: None }),
    }
}

fn tier_fields(fields: &[(Cow<'_, str>, PlanValue<'_>)]) -> Result<TierNumbers, ValueFault> {
    let (mut requests, mut burst) = (None, None);
    for (name, value) in fields {
        let of_field = |(what, hint): ValueFault| (format!("`{name}`: {what}"), hint);
        match &**name {
            "requests" => requests = Some(number(value).map_err(of_field)?),
            "burst" => burst = Some(number(value).map_err(of_field)?),
            other => {
                let what = format!("unknown field `{}`", shown(other));
                let meant = nearest(other, ["requests", "burst"]);
                let hint = match meant {
                    Some("requests") => "did you mean `requests`?",
                    Some(_) => "did you mean `burst`?",
                    None => "the fields are requests and burst; the window is that of the rule",
                };
                return Err((what, hint));
            }
        }
    }
    let requests = requests.ok_or_else(|| ("`requests` is missing".to_owned(), TIER_HINT))?;
    Ok(TierNumbers { requests, burst })
}

fn number(value: &PlanValue<'_>) -> Result<u64, ValueFault> {
    let text = match value {
        PlanValue::Plain(text) => text,
        PlanValue::Quoted(text) => {
            return Err((format!("`{}` is a text in quotes", shown(text)), NUMBER_HINT));
        }
        PlanValue::List(_) | PlanValue::Map(_) => {
            return Err(("it is no number".to_owned(), NUMBER_HINT));
        }
    };
    let digits = text.replace('_', "");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err((format!("`{}` is no whole number", shown(text)), NUMBER_HINT));
    }
    match digits.parse() {
        Ok(number) if number < HITS_END => Ok(number),
        _ => {
            let what = format!("`{}` is too large", shown(text));
            Err((what, "write at most 9007199254740991, or `unlimited`"))
        }
    }
}
