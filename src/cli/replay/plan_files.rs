//! The plans of a replay: files of plans and customers for each of the two rule sets.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::app;
use crate::cli::say;
use crate::plans::Plans;
use crate::replay::ReplayRules;
use crate::rules::RuleSet;
use crate::settings::{PlanSourceKind, PlansSettings};

/// The flags that name files of plans.
#[derive(Debug, Args)]
pub(super) struct PlanFileArgs {
    /// File of plans, as `plans.file`, for rules with `limit_from` [default: that of the settings, if these
    /// are read]
    #[arg(long, value_name = "FILE")]
    plans: Option<PathBuf>,
    /// File of customers, as `plans.customers_file` [default: that of the settings, if these are read]
    #[arg(long, value_name = "FILE")]
    customers: Option<PathBuf>,
    /// File of plans of the old rules [default: that of the new ones]
    #[arg(long, value_name = "FILE")]
    against_plans: Option<PathBuf>,
    /// File of customers of the old rules [default: that of the new ones]
    #[arg(long, value_name = "FILE")]
    against_customers: Option<PathBuf>,
}

impl PlanFileArgs {
    /// The old and the new rules with their plans. Both have the same plans in memory if they have the same
    /// files. Writes warnings and problems to standard error. `None` if files cannot be used.
    ///
    /// # Errors
    ///
    /// Customers without plans.
    pub(super) fn with_plans<'r>(
        &self,
        settings: &PlansSettings,
        old: &'r RuleSet,
        new: &'r RuleSet,
    ) -> anyhow::Result<Option<[ReplayRules<'r>; 2]>> {
        let of_new = chosen(settings, &[&self.plans], &[&self.customers])?;
        let of_old = chosen(
            settings,
            &[&self.against_plans, &self.plans],
            &[&self.against_customers, &self.customers],
        )?;
        let read = if of_old == of_new {
            read(&of_new, &[old, new]).map(|plans| [plans.clone(), plans])
        } else {
            let (of_old, of_new) = (read(&of_old, &[old]), read(&of_new, &[new]));
            of_old.and_then(|of_old| Some([of_old, of_new?]))
        };
        let Some([plans_of_old, plans_of_new]) = read else { return Ok(None) };
        let old = ReplayRules { rules: old, plans: plans_of_old };
        let new = ReplayRules { rules: new, plans: plans_of_new };
        if [&old, &new].into_iter().any(lacks_plans) {
            say(format_args!(
                "warning: rules with `limit_from` decide by their own numbers; name a plans \
                 file by --plans, or by plans.file of --config"
            ));
        }
        Ok(Some([old, new]))
    }
}

/// Whether a rule takes its numbers from plans, and there are none.
fn lacks_plans(one: &ReplayRules<'_>) -> bool {
    one.plans.is_none() && one.rules.rules().iter().any(|rule| rule.limit_from.is_some())
}

/// `settings` with the first file of each list that a flag names.
fn chosen(
    settings: &PlansSettings,
    plans: &[&Option<PathBuf>],
    customers: &[&Option<PathBuf>],
) -> anyhow::Result<PlansSettings> {
    let first = |flags: &[&Option<PathBuf>]| flags.iter().find_map(|flag| (*flag).clone());
    let mut chosen = settings.clone();
    if let Some(file) = first(plans) {
        if chosen.source != PlanSourceKind::File {
            chosen.customers_file = None;
        }
        (chosen.source, chosen.file) = (PlanSourceKind::File, Some(file));
    }
    if let Some(file) = first(customers) {
        anyhow::ensure!(
            chosen.source == PlanSourceKind::File,
            "{}: customers need plans; name a file of plans by --plans",
            file.display()
        );
        chosen.customers_file = Some(file);
    }
    Ok(chosen)
}

/// The plans of the files, for `sets` of rules. `None` if they cannot be used.
fn read(settings: &PlansSettings, sets: &[&RuleSet]) -> Option<Option<Arc<Plans>>> {
    match app::plans_of_files(settings, sets) {
        Ok(plans) => {
            let status = plans.as_ref().map(|plans| plans.status());
            for warning in status.unwrap_or_default().warnings {
                say(format_args!("warning: {warning}"));
            }
            Some(plans)
        }
        Err(problems) => {
            for problem in problems {
                say(format_args!("{problem}"));
            }
            None
        }
    }
}
