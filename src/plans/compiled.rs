//! Plans compiled for the rules that use them: the numbers of each plan, found without names.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use super::PlanLimit;
use super::book::{LIMITS_PER_PLAN_MAX, LimitNumbers, PlanBook, PlanId, shown};
use crate::limit::{Limit, NumbersError};
use crate::rules::{LimitFrom, Rule, RuleLimit, RuleSet, ShownRule};
use crate::spelling::nearest;

/// Most uses that are compiled and checked. Further ones find their numbers by name.
const USES_MAX: usize = 10_000;

/// Most numbers of all uses and plans together.
const OUTCOMES_MAX: usize = 1_000_000;

/// Most warnings that are listed.
const WARNINGS_MAX: usize = 100;

/// The use of plans by rules: the limit of their plans, and the algorithm and the windows to which its
/// numbers belong.
#[derive(Clone, Debug)]
pub(super) struct PlanUse {
    from: LimitFrom,
    limit: Limit,
    /// The first rule with this use, for messages.
    rule: String,
}

impl PlanUse {
    /// The different uses of all rules of `sets`, at most [`USES_MAX`].
    pub(super) fn all(sets: &[&RuleSet]) -> Vec<PlanUse> {
        let mut known: HashSet<u64, UseIdState> = HashSet::default();
        let mut uses = Vec::new();
        for rule in sets.iter().flat_map(|set| set.rules()) {
            let (Some(from), RuleLimit::Limit(limit)) = (&rule.limit_from, &rule.limit) else {
                continue;
            };
            if uses.len() < USES_MAX && known.insert(from.use_id) {
                let (from, limit) = (LimitFrom::clone(from), limit.clone());
                uses.push(PlanUse { from, limit, rule: rule_text(rule) });
            }
        }
        uses
    }
}

fn rule_text(rule: &Rule) -> String {
    format!("rule `{}` of domain `{}`", shown(&ShownRule::of(rule).name), shown(&rule.domain))
}

/// What a plan says about the limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanOutcome {
    /// Nothing, or numbers that do not fit: the numbers of the rule decide.
    Own,
    Unlimited,
    /// The requests and the burst of each tier.
    Tiers(SmallVec<[(u64, u64); 1]>),
}

impl PlanOutcome {
    /// What `plan` says about `limit`, which a rule calls by the name in `from`.
    pub(super) fn of(
        book: &PlanBook,
        plan: PlanId,
        from: &LimitFrom,
        limit: &Limit,
    ) -> Result<PlanOutcome, NumbersError> {
        match book.numbers(plan).and_then(|plan| plan.limit(&from.limit)) {
            None => Ok(PlanOutcome::Own),
            Some(LimitNumbers::Unlimited) => Ok(PlanOutcome::Unlimited),
            Some(LimitNumbers::Tiers(numbers)) => {
                let limit = limit.with_numbers(numbers)?;
                let tiers = limit.tiers.iter().map(|tier| (tier.requests, tier.burst));
                Ok(PlanOutcome::Tiers(tiers.collect()))
            }
        }
    }

    /// The limit of a rule under this plan.
    #[inline]
    pub(super) fn apply<'r>(&self, limit: &'r Limit) -> PlanLimit<'r> {
        match self {
            PlanOutcome::Own => PlanLimit::Own(limit),
            PlanOutcome::Unlimited => PlanLimit::Unlimited,
            PlanOutcome::Tiers(numbers) if numbers.len() == limit.tiers.len() => {
                let mut limit = limit.clone();
                for (tier, numbers) in limit.tiers.iter_mut().zip(numbers) {
                    (tier.requests, tier.burst) = *numbers;
                }
                PlanLimit::Plan(Cow::Owned(limit))
            }
            PlanOutcome::Tiers(_) => PlanLimit::Own(limit),
        }
    }
}

/// The numbers of every plan for one use.
#[derive(Debug)]
pub(super) struct CompiledUse {
    /// The default plan, if the book has it.
    pub(super) default: Option<PlanId>,
    /// One item per plan of the book.
    pub(super) plans: Box<[PlanOutcome]>,
}

/// A book, and its numbers for the active rules.
#[derive(Debug, Default)]
pub(super) struct CompiledBook {
    pub(super) book: Arc<PlanBook>,
    pub(super) uses: CompiledUses,
    /// Numbers that do not fit, and names that the book does not have.
    pub(super) warnings: Vec<String>,
}

/// Compiles plans for the active rules.
#[derive(Debug, Default)]
pub(super) struct PlanCompiler {
    /// The uses of plans by these rules.
    pub(super) uses: Vec<PlanUse>,
}

impl PlanCompiler {
    /// The numbers of `book` for the rules.
    pub(super) fn compile(&self, book: Arc<PlanBook>) -> CompiledBook {
        #[cfg(test)]
        if let Some(meanwhile) = MEANWHILE.take() {
            meanwhile();
        }
        let (uses, warnings) = compile(&book, &self.uses);
        CompiledBook { book, uses, warnings }
    }
}

#[cfg(test)]
thread_local! {
    /// What a test does during the next compilation of its thread.
    pub(super) static MEANWHILE: std::cell::RefCell<Option<Box<dyn FnOnce()>>> =
        const { std::cell::RefCell::new(None) };
}

/// The uses by their ids.
pub(super) type CompiledUses = HashMap<u64, CompiledUse, UseIdState>;

/// Compiles `book` for all `uses`. Returns the warnings about numbers that do not fit, and about names
/// that the book does not have.
fn compile(book: &PlanBook, uses: &[PlanUse]) -> (CompiledUses, Vec<String>) {
    let mut compiled = CompiledUses::default();
    let mut warnings = WarningList::default();
    // Before the first book there is nothing to warn of.
    if book.is_empty() {
        return (compiled, warnings.texts);
    }
    for one in uses.iter().take(OUTCOMES_MAX / book.len()) {
        compiled.insert(one.from.use_id, compile_use(book, one, &mut warnings));
    }
    (compiled, warnings.finish())
}

fn compile_use(book: &PlanBook, one: &PlanUse, warnings: &mut WarningList) -> CompiledUse {
    let PlanUse { from, limit, rule } = one;
    let name = shown(&from.limit);
    let outcome = |(id, (plan, _))| {
        let outcome = PlanOutcome::of(book, PlanId(id), from, limit);
        outcome.unwrap_or_else(|error| {
            let plan = shown(plan);
            warnings.push(|| {
                format!(
                    "limit `{name}` of plan `{plan}` does not fit {rule}, whose own numbers \
                     decide: {error}"
                )
            });
            PlanOutcome::Own
        })
    };
    let plans: Box<[PlanOutcome]> = (0..).zip(book.plans()).map(outcome).collect();
    if !book.plans().any(|(_, plan)| plan.limit(&from.limit).is_some()) {
        let names = book.plans().flat_map(|(_, plan)| plan.limits().map(|(name, _)| name));
        let hint = hint(&from.limit, names.take(LIMITS_PER_PLAN_MAX));
        warnings.push(|| format!("no plan has the limit `{name}` of {rule}{hint}"));
    }
    let default = from.default.as_deref().and_then(|plan| book.id(plan));
    if let (Some(plan), None) = (&from.default, default) {
        let hint = hint(plan, book.plans().map(|(name, _)| name));
        let plan = shown(plan);
        warnings.push(|| format!("the default plan `{plan}` of {rule} is not defined{hint}"));
    }
    CompiledUse { default, plans }
}

/// A suggestion for a name that no plan has.
fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |one| format!("; did you mean `{}`?", shown(one)))
}

/// Warnings, up to a number.
#[derive(Default)]
struct WarningList {
    texts: Vec<String>,
    unlisted: usize,
}

impl WarningList {
    fn push(&mut self, text: impl FnOnce() -> String) {
        if self.texts.len() < WARNINGS_MAX {
            self.texts.push(text());
        } else {
            self.unlisted += 1;
        }
    }

    fn finish(mut self) -> Vec<String> {
        if self.unlisted > 0 {
            self.texts.push(format!("{} more warnings about plans are not listed", self.unlisted));
        }
        self.texts
    }
}

/// Hashes the id of a use, which is a hash already.
pub(super) type UseIdState = BuildHasherDefault<UseIdHasher>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UseIdHasher(u64);

impl Hasher for UseIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only ids are hashed.
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }
}
