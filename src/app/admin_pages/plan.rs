//! The plan of a descriptor on the admin port.

use serde::Serialize;

use crate::escape::excerpt;
use crate::plans::{PlanChoice, PlanLimit, PlanSelection};

/// Longest name of a plan in a text, in characters.
const CHARS_MAX: usize = 80;

/// The plan of a descriptor.
#[derive(Serialize)]
pub(super) struct ShownPlan {
    /// The name of the plan; `None` without one.
    name: Option<String>,
    /// Why this plan: `customer`, `descriptor`, `default`, or `rule` without one.
    selection: &'static str,
    /// Whose numbers decide: those of the `plan`, or of the `rule`; or `unlimited`.
    numbers: &'static str,
}

impl ShownPlan {
    pub(super) fn of(choice: &PlanChoice<'_>) -> ShownPlan {
        let PlanChoice { plan, selection, limit } = choice;
        let numbers = match limit {
            PlanLimit::Plan(_) => "plan",
            PlanLimit::Unlimited => "unlimited",
            PlanLimit::Own(_) | PlanLimit::Unknown { .. } => "rule",
        };
        let name = plan.as_deref().map(str::to_owned);
        ShownPlan { name, selection: selection.name(), numbers }
    }

    /// The line of `weir explain`, with its end.
    pub(super) fn text(&self) -> String {
        let Some(name) = &self.name else {
            return "plan    none: the numbers of the rule decide\n".to_owned();
        };
        let why = match self.selection {
            word if word == PlanSelection::Default.name() => "the default",
            word if word == PlanSelection::Descriptor.name() => "the descriptor names it",
            _ => "that of the customer",
        };
        let numbers = match self.numbers {
            "plan" => "",
            "unlimited" => "; unlimited",
            _ => "; it has no numbers that fit, so those of the rule decide",
        };
        format!("plan    {} ({why}){numbers}\n", excerpt(name, CHARS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::time::Micros;

    #[test]
    fn a_plan_has_a_line() {
        let limit = Limit::fixed_window(1, Micros(1));
        let line = |plan: Option<&str>, selection, limit| {
            ShownPlan::of(&PlanChoice { plan: plan.map(Into::into), selection, limit }).text()
        };
        let own = || PlanLimit::Own(&limit);
        let of_plan = || PlanLimit::Plan(std::borrow::Cow::Borrowed(&limit));
        for (shown, expected) in [
            (line(None, PlanSelection::Rule, own()), "none: the numbers of the rule decide"),
            (line(Some("pro"), PlanSelection::Customer, of_plan()), "pro (that of the customer)"),
            (line(Some("a\nb"), PlanSelection::Default, of_plan()), "a\\nb (the default)"),
            (
                line(Some("x"), PlanSelection::Descriptor, PlanLimit::Unlimited),
                "x (the descriptor names it); unlimited",
            ),
            (
                line(Some("x"), PlanSelection::Default, own()),
                "x (the default); it has no numbers that fit, so those of the rule decide",
            ),
        ] {
            assert_eq!(shown, format!("plan    {expected}\n"));
        }
    }
}
