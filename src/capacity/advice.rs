//! What to change if no number of primaries suffices: the model calculates each change.

use super::inputs::{Inputs, RuleLoad};
use super::traffic::Traffic;
use super::{INSTANCES_MAX, instances_needed, primaries, primaries_needed};
use crate::limit::Mode;
use crate::time::Micros;

/// The interval of a rule that becomes synced: the default.
const SYNC_INTERVAL: Micros = Micros::SECOND;

/// The longest interval that is proposed.
const SYNC_INTERVAL_MAX: Micros = Micros::from_secs(60);

/// A change that leaves more than this part of the use is not worth a mention.
const USE_LEFT_MAX: f64 = 0.9;

/// A change of a setting or of the mode of rules.
struct Proposal {
    text: String,
    kind: ProposedChange,
}

enum ProposedChange {
    Functions,
    /// The rule at this index becomes this one.
    Rule(usize, Box<RuleLoad>),
    /// All rules get this mode that support it.
    AllRules(Mode),
}

impl Proposal {
    fn inputs(&self, inputs: &Inputs) -> Inputs {
        let mut inputs = inputs.clone();
        match &self.kind {
            ProposedChange::Functions => inputs.uses_functions = true,
            ProposedChange::Rule(index, rule) => inputs.rules[*index] = RuleLoad::clone(rule),
            ProposedChange::AllRules(mode) => {
                for rule in &mut inputs.rules {
                    *rule = rule.in_mode(*mode).unwrap_or_else(|| rule.clone());
                }
            }
        }
        inputs
    }
}

/// The least use of the hottest primary.
struct LeastUse {
    /// Whether a number of primaries suffices.
    suffices: bool,
    /// The use with the most primaries.
    cores: f64,
    /// The rule of the busiest counter, and whether this counter causes most of the use.
    rule: usize,
    is_of_one_counter: bool,
}

impl LeastUse {
    fn of(inputs: &Inputs) -> LeastUse {
        let instances = inputs.instances.or_else(|| instances_needed(inputs));
        let traffic = Traffic::of(inputs, instances.unwrap_or(INSTANCES_MAX));
        let hottest = primaries::hottest(inputs, &traffic, primaries::PRIMARIES_MAX);
        let (rule, steps) = traffic.hottest_counter;
        LeastUse {
            suffices: primaries_needed(inputs, &traffic).is_some(),
            cores: hottest.cores.high,
            rule,
            is_of_one_counter: steps > hottest.steps_per_second / 2.0,
        }
    }
}

/// The first change with which a number of primaries suffices. If there is none: the change that helps
/// most, and what else is needed.
pub(super) fn change(inputs: &Inputs) -> String {
    let present = LeastUse::of(inputs);
    let mut best: Option<(Proposal, LeastUse)> = None;
    for change in changes(inputs, present.rule) {
        let least = LeastUse::of(&change.inputs(inputs));
        if least.suffices {
            return change.text;
        }
        let most = best.as_ref().map_or(USE_LEFT_MAX * present.cores, |(_, best)| best.cores);
        if least.cores < most {
            best = Some((change, least));
        }
    }
    match best {
        Some((change, least)) => format!("{}, and {}", change.text, other_load(inputs, &least)),
        None => other_load(inputs, &present),
    }
}

/// What helps where no setting does.
fn other_load(inputs: &Inputs, least: &LeastUse) -> String {
    match least.is_of_one_counter {
        true => format!("more counters for {}", inputs.rules[least.rule].place()),
        false => {
            "several deployments, each with its own Redis and a part of the counters".to_owned()
        }
    }
}

/// The changes, in the order in which they are proposed: first those that decide as before, and `leased`,
/// which never exceeds a limit, before `synced`.
fn changes(inputs: &Inputs, hottest: usize) -> Vec<Proposal> {
    let mut changes = Vec::new();
    let mut add = |text: String, kind: ProposedChange| changes.push(Proposal { text, kind });
    if !inputs.uses_functions {
        add("`redis.functions: auto`".to_owned(), ProposedChange::Functions);
    }
    let rule = &inputs.rules[hottest];
    let modes = [Mode::Leased, Mode::Synced { interval: SYNC_INTERVAL }];
    for mode in modes {
        if let Some(changed) = rule.in_mode(mode) {
            let text = format!("`mode: {}` for {}", mode.name(), rule.place());
            add(text, ProposedChange::Rule(hottest, changed.into()));
        }
    }
    if let Mode::Synced { interval } = rule.mode
        && interval < SYNC_INTERVAL_MAX
    {
        let interval = Micros((10 * interval.0).min(SYNC_INTERVAL_MAX.0));
        let mut changed = rule.clone();
        changed.mode = Mode::Synced { interval };
        let text = format!("a longer `sync_interval` for {}", rule.place());
        add(text, ProposedChange::Rule(hottest, changed.into()));
    }
    for mode in modes {
        if inputs.rules.iter().filter(|rule| rule.in_mode(mode).is_some()).count() > 1 {
            let text = format!("`mode: {}` for all rules that support it", mode.name());
            add(text, ProposedChange::AllRules(mode));
        }
    }
    changes
}
