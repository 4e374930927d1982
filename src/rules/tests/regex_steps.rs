//! The bound of the steps of one lookup among regular expressions.

use super::*;
use crate::rules::compile::regex_budget::LEVEL_STATES_MAX;
use crate::rules::lookup::matcher::{Matcher, STATES_MAX};
use crate::rules::lookup::search_steps;

/// An expression whose automaton needs a new state after every `a`, so its group gives up and the
/// expression is searched alone too.
fn slow(first: char, last: char, repeats: usize) -> String {
    format!("[a-{first}]*a[a-{last}]{{{repeats}}}")
}

fn states(regex: &str) -> usize {
    match Matcher::regex(regex.into(), &[]) {
        Ok(Matcher::Regex(regex)) => regex.states(),
        other => panic!("{regex}: {other:?}"),
    }
}

/// The slowest level that is permitted: as many expressions of the largest size as fit, each of
/// them searched twice.
#[test]
fn steps_of_the_slowest_lookup_are_bounded() {
    let fixed = states(&slow('b', 'b', 2)) - 2;
    let repeats = STATES_MAX - fixed;
    assert_eq!(states(&slow('b', 'b', repeats)), STATES_MAX);
    let rule = |regex: &str| {
        let limit = "rate_limit: { requests: 1, window: 1s }";
        format!("- {{ key: p, value_regex: '{regex}', {limit} }}\n")
    };
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for first in 'b'..='i' {
        for last in 'b'..='i' {
            text += &rule(&slow(first, last, repeats));
        }
    }
    let set = rules(&text);
    let value = "a".repeat(2000);
    search_steps::take();
    assert!(found(&set, &format!("p={value}")).is_none());
    let positions = value.len() as u64 + 1;
    assert_eq!(search_steps::take(), 2 * LEVEL_STATES_MAX as u64 * positions);

    let Err(problems) = compiled(&(text + &rule("b")), &Options::default()) else {
        panic!("one more expression is permitted");
    };
    let problems: Vec<String> = problems.iter().map(RuleProblem::to_string).collect();
    let expected = "test.yaml:67:3: the regular expressions of `p` on this level need more than \
                    262144 steps per byte of a value; ";
    assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
}
