//! The contract with the Lua scripts: which one runs a step, its argument, and what it answers.
//!
//! A script takes one or many steps: `KEYS[i]` is a counter, `ARGV[i]` the step on it in the form
//! that [`encode`] gives. It answers with one flat list of integers, [`answers`] of them per step,
//! in the order of the keys. Each file of `lua/` tells its part in its header.

use smallvec::SmallVec;

use crate::step::{INTEGER_END, Lease, Machine, Outcome, Seen, Step};

/// The most tiers a script takes, which is the most that a rule may have.
const TIERS_MAX: usize = 16;

/// A script: one per state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Script {
    /// fixed_window
    Count,
    /// sliding_window
    Pair,
    /// token_bucket and leaky_bucket
    Tat,
    /// sliding_window_log and concurrency
    Holds,
}

/// What a step shall do, as the first byte of its argument.
#[derive(Clone, Copy)]
enum Act {
    /// Take the hits; none to look.
    Take = 0,
    /// Give the hits back.
    GiveBack = 1,
    /// Take the hits under a lease.
    Open = 2,
    /// End a lease.
    Close = 3,
}

/// A script's answer that no step can have: another version of weir, or no weir at all, wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the script's answer is not the outcome of its step: is the key used by something else?")]
pub struct Malformed;

impl Script {
    /// Every script.
    pub const ALL: [Script; 4] = [Script::Count, Script::Pair, Script::Tat, Script::Holds];

    /// The one that runs `step`.
    pub fn of(step: &Step) -> Script {
        match step.machine {
            Machine::Count(_) => Script::Count,
            Machine::Pair(_) => Script::Pair,
            Machine::Tat(_) => Script::Tat,
            Machine::Log(_) | Machine::Slots(_) => Script::Holds,
        }
    }

    /// Its text, to be loaded on every node.
    pub const fn source(self) -> &'static str {
        match self {
            Script::Count => COUNT,
            Script::Pair => PAIR,
            Script::Tat => TAT,
            Script::Holds => HOLDS,
        }
    }

    /// The name under which Redis keeps it: 40 hexadecimal digits.
    pub fn sha1(self) -> String {
        sha1_smol::Sha1::from(self.source()).digest().to_string()
    }
}

/// The files that `lua/` splits a script into, in the order in which they build on each other.
macro_rules! script {
    ($($file:literal)+) => {
        concat!($(include_str!(concat!("../../../lua/", $file, ".lua")), "\n"),+)
    };
}

const COUNT: &str = script!("value" "deque" "reservation" "count" "meter");
const PAIR: &str = script!("value" "deque" "reservation" "pair" "meter");
const TAT: &str = script!("value" "deque" "reservation" "tat" "meter");
const HOLDS: &str = script!("value" "deque" "reservation" "holds");

/// Appends the argument that tells a script to do `step`.
pub fn encode(step: &Step, argument: &mut Vec<u8>) {
    let (act, lease) = match step.lease {
        Some(Lease::Close(id)) => (Act::Close, Some((id, None))),
        // Means nothing on a peek or a refund.
        Some(Lease::Open { id, until }) if step.hits > 0 => (Act::Open, Some((id, Some(until)))),
        _ if step.hits < 0 => (Act::GiveBack, None),
        _ => (Act::Take, None),
    };
    let tiers = tiers(step).min(TIERS_MAX);
    argument.extend([act as u8, u8::from(step.count_denied), kind(step), tiers as u8]);
    numbers(argument, &[step.now.0, step.hits.unsigned_abs()]);
    match &step.machine {
        Machine::Count(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                numbers(argument, &[tier.start.0, tier.end.0, tier.max]);
            }
        }
        Machine::Pair(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                numbers(argument, &[tier.start.0, tier.window.0, tier.rest.0, tier.max]);
            }
        }
        Machine::Tat(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                numbers(argument, &[tier.now.0, tier.parts, tier.cost.micros, tier.cost.part]);
                numbers(argument, &[tier.horizon.micros, tier.horizon.part]);
                numbers(argument, &[tier.most.micros, tier.most.part]);
            }
        }
        Machine::Log(tiers) | Machine::Slots(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                numbers(argument, &[tier.after.0, tier.window.0, tier.max]);
            }
        }
    }
    if let Some((id, until)) = lease {
        argument.extend(id.0.get().to_be_bytes());
        numbers(argument, &[until.unwrap_or_default().0]);
    }
}

/// The machine's letter, by which a state is told from another machine's.
fn kind(step: &Step) -> u8 {
    match step.machine {
        Machine::Count(_) => b'c',
        Machine::Pair(_) => b'p',
        Machine::Tat(_) => b't',
        Machine::Log(_) => b'l',
        Machine::Slots(_) => b's',
    }
}

/// Appends each number in seven bytes, the highest first: `I7` in the scripts.
fn numbers(argument: &mut Vec<u8>, numbers: &[u64]) {
    for &number in numbers {
        // A step keeps below the end. One that does not shall still be exact in a double.
        argument.extend(&number.min(INTEGER_END - 1).to_be_bytes()[1..]);
    }
}

/// How many integers answer `step`.
pub fn answers(step: &Step) -> usize {
    tiers(step) * per_tier(step)
}

fn tiers(step: &Step) -> usize {
    match &step.machine {
        Machine::Count(tiers) => tiers.len(),
        Machine::Pair(tiers) => tiers.len(),
        Machine::Tat(tiers) => tiers.len(),
        Machine::Log(tiers) | Machine::Slots(tiers) => tiers.len(),
    }
}

fn per_tier(step: &Step) -> usize {
    if matches!(step.machine, Machine::Pair(_)) { 4 } else { 3 }
}

/// The outcome of `step` that these integers, [`answers`] of them, tell.
pub fn decode(step: &Step, reply: &[i64]) -> Result<Outcome, Malformed> {
    if reply.is_empty() || reply.len() != answers(step) {
        return Err(Malformed);
    }
    let number = |index: usize, tier: &[i64]| {
        let number = u64::try_from(tier.get(index).copied().unwrap_or_default());
        number.ok().filter(|&number| number < INTEGER_END).ok_or(Malformed)
    };
    let tiers = reply.chunks(per_tier(step)).map(|tier| {
        let allowed = match tier[0] {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        Ok(Seen { allowed, a: number(1, tier)?, b: number(2, tier)?, c: number(3, tier)? })
    });
    let tiers: SmallVec<[Seen; 1]> = tiers.collect::<Result<_, _>>()?;
    Ok(Outcome { allowed: tiers.iter().all(|tier| tier.allowed), tiers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{CountTier, HoldTier, LeaseId, PairTier};
    use crate::time::Micros;

    fn step(hits: i64, lease: Option<Lease>, machine: Machine) -> Step {
        Step { now: Micros(0x0102_0304_0506_0708), hits, count_denied: true, lease, machine }
    }

    fn count(hits: i64, lease: Option<Lease>) -> Step {
        let tier = CountTier { start: Micros(1), end: Micros(2), max: 3 };
        step(hits, lease, Machine::Count([tier].into_iter().collect()))
    }

    fn pair() -> Step {
        let tier = PairTier { start: Micros(1), window: Micros(2), rest: Micros(3), max: 4 };
        step(1, None, Machine::Pair([tier; 2].into_iter().collect()))
    }

    fn encoded(step: &Step) -> Vec<u8> {
        let mut argument = Vec::new();
        encode(step, &mut argument);
        argument
    }

    #[test]
    fn an_argument_is_packed_as_the_scripts_read_it() {
        let id = LeaseId::from_bits(0x1122_3344_5566_7788);
        let mut step = count(-258, Some(Lease::Close(id)));
        step.now = Micros(0x0a_0b0c_0d0e_0f10);
        let expected = [
            &[3, 1, b'c', 1][..],
            &[0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10],
            &[0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3],
            &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],
            &[0; 7],
        ];
        assert_eq!(encoded(&step), expected.concat());
    }

    #[test]
    fn a_lease_is_opened_by_hits_that_are_taken_only() {
        let open = |id| Some(Lease::Open { id: LeaseId::from_bits(id), until: Micros(9) });
        let acts: Vec<u8> =
            [(5, None), (0, None), (-5, None), (5, open(1)), (0, open(1)), (-5, open(1))]
                .map(|(hits, lease)| encoded(&count(hits, lease))[0])
                .into();
        assert_eq!(acts, [0, 0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_number_too_large_for_a_double_is_cut_rather_than_wrapped() {
        let argument = encoded(&count(1, None));
        assert_eq!(argument[4..11], (INTEGER_END - 1).to_be_bytes()[1..]);
    }

    #[test]
    fn an_answer_is_read_per_tier_and_allowed_only_by_all() {
        let reply = [1, 10, 20, 30, 0, 11, 21, 31];
        let outcome = decode(&pair(), &reply).expect("as many as the tiers need");
        let seen = |allowed, a, b, c| Seen { allowed, a, b, c };
        assert_eq!(outcome.tiers[..], [seen(true, 10, 20, 30), seen(false, 11, 21, 31)]);
        assert!(!outcome.allowed);
        let outcome = decode(&count(1, None), &[1, 7, 8]).expect("three for a count");
        assert_eq!((outcome.allowed, outcome.tiers[0]), (true, seen(true, 7, 8, 0)));
    }

    #[test]
    fn what_no_step_answers_is_malformed() {
        let end = INTEGER_END as i64;
        let replies = [&[][..], &[1, 2], &[1, 2, 3, 4], &[2, 1, 1], &[-1, 1, 1], &[1, -1, 1]];
        for reply in replies.into_iter().chain([&[1, end, 1][..], &[1, 1, i64::MAX]]) {
            assert_eq!(decode(&count(1, None), reply), Err(Malformed), "{reply:?}");
        }
        let none = step(1, None, Machine::Log([].into_iter().collect()));
        assert_eq!(decode(&none, &[]), Err(Malformed), "a step without tiers decides nothing");
        let tier = HoldTier { after: Micros(1), window: Micros(1), max: 1 };
        let many = step(1, None, Machine::Slots([tier; 17].into_iter().collect()));
        assert_eq!(encoded(&many)[3], 16);
        assert_eq!(decode(&many, &[1; 48]), Err(Malformed), "more tiers than a script takes");
    }

    #[test]
    fn every_script_is_named_after_its_text() {
        for (index, script) in Script::ALL.into_iter().enumerate() {
            assert!(script.source().contains("for i = 1, #KEYS do"), "{script:?} is cut off");
            assert_eq!(script.sha1().len(), 40);
            let others = Script::ALL.into_iter().skip(index + 1);
            assert!(others.into_iter().all(|other| other.sha1() != script.sha1()));
        }
    }
}
