//! Equal steps on one counter, sent as one step and a number: `lua/repeated.lua` applies them.
//!
//! Redis replies the value before the first of them, and this module calculates the outcome of each with
//! [`Step::apply`], the twin of the script. So what Redis does for a hot counter does not depend on the
//! number of steps. Counters with equal steps share one argument: see [`groups`](super::groups).

use std::ops::Range;

use smallvec::SmallVec;

use crate::step::{
    FixedWindow, FixedWindowTier, INTEGER_END, State, Step, StepParams, TierResult, TierStates,
};
use crate::store::redis::script::{EncodedStep, Script};
use crate::time::Micros;

/// The most time between the instant of a step and that of the first step of its counter, if they are sent as one;
/// and between the first steps of counters that share an argument. The script knows one instant only, and sets the
/// time to live by it, so this differs by at most twice as much. Steps wait for a batch for less time.
pub const REPEATED_WITHIN: Micros = Micros::from_millis(16);

/// The act of such a step, its first byte.
const REPEAT: u8 = 4;

/// Bytes of the number of steps.
pub(super) const NUMBER_SIZE: usize = 7;

/// Bytes of a run before its first step: the state's letter and the number of tiers.
const HEAD_SIZE: usize = 2;
/// Bytes of a step of fixed_window with one tier: act, count denied, and five numbers.
const STEP_SIZE: usize = 2 + 5 * 7;
/// The step's instant, after act and count denied. What follows must be equal.
const INSTANT: Range<usize> = 2..9;

/// Bytes of the reply, a value of fixed_window with one tier: the state's letter, the number of tiers, the hits,
/// the start of their window, and the instant until which the value is kept.
pub(super) const REPLY_SIZE: usize = HEAD_SIZE + 3 * 7;
/// Bytes of the outcome of one step: whether its hits pass, and two numbers.
const OUTCOME_SIZE: usize = 1 + 2 * 7;

/// Whether `step` may be sent several times at once: if it takes hits of one fixed window.
pub(super) fn is_repeatable(step: &EncodedStep) -> bool {
    step.script == Script::FixedWindow && step.plain && step.body.len() == STEP_SIZE
}

/// Whether `step` differs only in its instant from the step with which the run `argument` begins. Its window
/// is the same, and the instants are near.
pub(super) fn is_equal(argument: &[u8], step: &EncodedStep) -> bool {
    let first = argument.get(HEAD_SIZE..HEAD_SIZE + STEP_SIZE);
    is_repeatable(step)
        && first.is_some_and(|first| {
            [step.body[0], REPEAT].contains(&first[0]) && are_near(first, &step.body)
        })
}

/// Whether the runs `one` and `other`, which both begin with a repeatable step, differ only in its instant and in
/// the number of steps. The instants are near.
pub(super) fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let steps = [one, other].map(|run| run.get(HEAD_SIZE..HEAD_SIZE + STEP_SIZE));
    matches!(steps, [Some(one), Some(other)] if are_near(one, other))
}

/// Whether two repeatable steps differ only in the act and in their instants, which are near.
fn are_near(one: &[u8], other: &[u8]) -> bool {
    one[1] == other[1]
        && one[INSTANT.end..] == other[INSTANT.end..]
        && number(&one[INSTANT]).abs_diff(number(&other[INSTANT])) <= REPEATED_WITHIN.0
}

/// Makes the run `argument`, which begins with a repeatable step, stand for `times` of them.
pub(super) fn repeat(argument: &mut Vec<u8>, times: usize) {
    argument.truncate(HEAD_SIZE + STEP_SIZE);
    argument[HEAD_SIZE] = REPEAT;
    argument.extend_from_slice(&(times as u64).to_be_bytes()[1..]);
}

/// The replies that the steps of the run `argument` would have one by one, from the reply `before` to all of
/// them: the value before the first one. Returns `None` if `before` cannot be from a script of this
/// version.
pub(super) fn replies<'a>(
    argument: &'a [u8],
    before: &[u8],
) -> Option<impl FnMut() -> SmallVec<[u8; OUTCOME_SIZE]> + use<'a>> {
    let (head, state) = before.split_at_checked(HEAD_SIZE)?;
    let mut numbers = state.chunks_exact(7).map(number);
    let (count, start) = (numbers.next()?, Micros(numbers.next()?));
    let is_value = argument.starts_with(head) && before.len() == REPLY_SIZE;
    if !is_value || count.max(start.0) >= INTEGER_END {
        return None;
    }
    let step = step_of(argument)?;
    let mut state = Some(State::FixedWindow(TierStates::One(FixedWindow { start, count })));
    Some(move || {
        let outcome = step.apply(&mut state);
        let TierResult { allowed, numbers: [count, start, _] } =
            outcome.tiers.first().copied().unwrap_or_default();
        let mut reply = SmallVec::new();
        reply.push(u8::from(allowed));
        reply.extend_from_slice(&count.to_be_bytes()[1..]);
        reply.extend_from_slice(&start.to_be_bytes()[1..]);
        reply
    })
}

/// The step of the run `argument`.
fn step_of(argument: &[u8]) -> Option<Step> {
    let body = argument.get(HEAD_SIZE..HEAD_SIZE + STEP_SIZE)?;
    let mut numbers = body[2..].chunks_exact(7).map(number);
    let mut next = || numbers.next();
    let [now, hits, start, kept_until, max] = [next()?, next()?, next()?, next()?, next()?];
    let tier = FixedWindowTier::new(Micros(start), Micros(kept_until.saturating_sub(start)), max);
    Some(Step {
        now: Micros(now),
        hits: i64::try_from(hits).ok()?,
        count_denied: body[1] == 1,
        lease: None,
        params: StepParams::FixedWindow([tier].into_iter().collect()),
    })
}

/// The number in seven bytes, big-endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
