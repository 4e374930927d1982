//! The contract with the Lua scripts: which one runs a step, its argument, and what it answers.
//!
//! A script takes one or many runs: `KEYS[i]` is a counter, `ARGV[i]` the steps on it, one after the
//! other in the form that [`EncodedStep::of`] gives, behind what they share. One more argument lets it
//! read all counters at once. It answers with one string,
//! [`EncodedStep::answer`] bytes per step, in the order of the runs. Each file of `lua/` tells its part
//! in its header.

use smallvec::SmallVec;

use crate::step::{INTEGER_END, Lease, Outcome, Params, Step, TierResult};

/// The most tiers a script takes, which is the most that a rule may have.
const TIERS_MAX: usize = 16;

/// A script: one per algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Script {
    /// fixed_window
    FixedWindow,
    /// sliding_window
    SlidingWindow,
    /// token_bucket and leaky_bucket
    Gcra,
    /// sliding_window_log and concurrency
    Entries,
}

/// What a step shall do, as the first byte of its argument.
#[derive(Clone, Copy)]
enum Action {
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
    pub const ALL: [Script; 4] =
        [Script::FixedWindow, Script::SlidingWindow, Script::Gcra, Script::Entries];

    /// The one that runs `step`.
    pub fn of(step: &Step) -> Script {
        match step.params {
            Params::FixedWindow(_) => Script::FixedWindow,
            Params::SlidingWindow(_) => Script::SlidingWindow,
            Params::Gcra(_) => Script::Gcra,
            Params::Log(_) | Params::Slots(_) => Script::Entries,
        }
    }

    /// Its text, to be loaded on every node.
    pub const fn source(self) -> &'static str {
        match self {
            Script::FixedWindow => FIXED_WINDOW,
            Script::SlidingWindow => SLIDING_WINDOW,
            Script::Gcra => GCRA,
            Script::Entries => ENTRIES,
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

const FIXED_WINDOW: &str = script!("protocol" "deque" "reservation" "fixed_window" "tier");
const SLIDING_WINDOW: &str = script!("protocol" "deque" "reservation" "sliding_window" "tier");
const GCRA: &str = script!("protocol" "deque" "reservation" "gcra" "tier");
const ENTRIES: &str = script!("protocol" "deque" "reservation" "entries");

/// A step in the form that a script reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedStep {
    /// The script that reads it.
    pub script: Script,
    /// What all steps of a run share: the algorithm's letter, and how many tiers.
    pub head: [u8; 2],
    /// Whether other steps may stand in its run.
    pub mixes: bool,
    /// It takes hits of a meter without a lease: of a rule without reservations, whose values are
    /// small.
    pub plain: bool,
    /// All else.
    pub body: SmallVec<[u8; BODY]>,
    /// Bytes that answer it.
    pub answer: usize,
}

/// Bytes of a step of one tier; others allocate.
const BODY: usize = 16 + 8 * 7 + 15;

impl EncodedStep {
    /// What tells a script to do `step`.
    pub fn of(step: &Step) -> EncodedStep {
        let (act, lease) = match step.lease {
            Some(Lease::Close(id)) => (Action::Close, Some((id, None))),
            // Means nothing on a peek or a refund.
            Some(Lease::Open { id, until }) if step.hits > 0 => {
                (Action::Open, Some((id, Some(until))))
            }
            _ if step.hits < 0 => (Action::GiveBack, None),
            _ => (Action::Take, None),
        };
        let mut body = SmallVec::new();
        body.extend_from_slice(&[act as u8, u8::from(step.count_denied)]);
        numbers(&mut body, &[step.now.0, step.hits.unsigned_abs()]);
        tiers_of(&step.params, &mut body);
        if let Some((id, until)) = lease {
            body.extend_from_slice(&id.0.get().to_be_bytes());
            numbers(&mut body, &[until.unwrap_or_default().0]);
        }
        let script = Script::of(step);
        EncodedStep {
            script,
            head: [kind(step), tiers(step).min(TIERS_MAX) as u8],
            // Reservations stand behind a meter's state and are changed in place.
            mixes: lease.is_none() || script == Script::Entries,
            plain: matches!(act, Action::Take) && step.hits > 0 && script != Script::Entries,
            body,
            answer: answers(step),
        }
    }
}

fn tiers_of(params: &Params, body: &mut SmallVec<[u8; BODY]>) {
    match params {
        Params::FixedWindow(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                numbers(body, &[tier.start.0, tier.end.0, tier.max]);
            }
        }
        Params::SlidingWindow(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                numbers(body, &[tier.start.0, tier.window.0, tier.rest.0, tier.max]);
            }
        }
        Params::Gcra(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                numbers(body, &[tier.now.0, tier.parts, tier.cost.micros, tier.cost.part]);
                numbers(body, &[tier.horizon.micros, tier.horizon.part]);
                numbers(body, &[tier.most.micros, tier.most.part]);
            }
        }
        Params::Log(tiers) | Params::Slots(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                numbers(body, &[tier.after.0, tier.window.0, tier.max]);
            }
        }
    }
}

/// The algorithm's letter, by which a state is told from another algorithm's.
fn kind(step: &Step) -> u8 {
    match step.params {
        Params::FixedWindow(_) => b'c',
        Params::SlidingWindow(_) => b'p',
        Params::Gcra(_) => b't',
        Params::Log(_) => b'l',
        Params::Slots(_) => b's',
    }
}

/// Appends each number in seven bytes, the highest first: `I7` in the scripts.
fn numbers(body: &mut SmallVec<[u8; BODY]>, numbers: &[u64]) {
    for &number in numbers {
        // A step keeps below the end, but for a limit that is none, which is the end itself. One that
        // does not shall still be exact in a double.
        body.extend_from_slice(&number.min(INTEGER_END).to_be_bytes()[1..]);
    }
}

/// How many bytes answer `step`: one per tier, and seven for each of the tiers' numbers.
fn answers(step: &Step) -> usize {
    tiers(step) * (1 + 7 * per_tier(step))
}

fn tiers(step: &Step) -> usize {
    match &step.params {
        Params::FixedWindow(tiers) => tiers.len(),
        Params::SlidingWindow(tiers) => tiers.len(),
        Params::Gcra(tiers) => tiers.len(),
        Params::Log(tiers) | Params::Slots(tiers) => tiers.len(),
    }
}

fn per_tier(step: &Step) -> usize {
    if matches!(step.params, Params::SlidingWindow(_)) { 3 } else { 2 }
}

/// The outcome of `step` that these bytes, [`EncodedStep::answer`] of them, tell.
pub fn decode(step: &Step, answer: &[u8]) -> Result<Outcome, Malformed> {
    if answer.is_empty() || answer.len() != answers(step) {
        return Err(Malformed);
    }
    let (passes, numbers) = answer.split_at(tiers(step));
    let number = |bytes: Option<&[u8]>| {
        let mut whole = [0; 8];
        whole[1..].copy_from_slice(bytes.unwrap_or(&[0; 7]));
        let number = u64::from_be_bytes(whole);
        if number < INTEGER_END { Ok(number) } else { Err(Malformed) }
    };
    let tiers = passes.iter().zip(numbers.chunks(7 * per_tier(step))).map(|(passes, numbers)| {
        let allowed = match passes {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        let mut numbers = numbers.chunks_exact(7);
        let (a, b) = (number(numbers.next())?, number(numbers.next())?);
        Ok(TierResult { allowed, a, b, c: number(numbers.next())? })
    });
    let tiers: SmallVec<[TierResult; 1]> = tiers.collect::<Result<_, _>>()?;
    Ok(Outcome { allowed: tiers.iter().all(|tier| tier.allowed), tiers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{EntriesTier, FixedWindowTier, LeaseId, SlidingWindowTier};
    use crate::time::Micros;

    fn step(hits: i64, lease: Option<Lease>, params: Params) -> Step {
        Step { now: Micros(0x0102_0304_0506_0708), hits, count_denied: true, lease, params }
    }

    fn count(hits: i64, lease: Option<Lease>) -> Step {
        let tier = FixedWindowTier { start: Micros(1), end: Micros(2), max: 3 };
        step(hits, lease, Params::FixedWindow([tier].into_iter().collect()))
    }

    fn pair() -> Step {
        let tier =
            SlidingWindowTier { start: Micros(1), window: Micros(2), rest: Micros(3), max: 4 };
        step(1, None, Params::SlidingWindow([tier; 2].into_iter().collect()))
    }

    fn body(step: &Step) -> Vec<u8> {
        EncodedStep::of(step).body.to_vec()
    }

    #[test]
    fn a_message_is_packed_as_the_scripts_read_it() {
        let id = LeaseId::from_bits(0x1122_3344_5566_7788);
        let mut step = count(-258, Some(Lease::Close(id)));
        step.now = Micros(0x0a_0b0c_0d0e_0f10);
        let expected = [
            &[3, 1][..],
            &[0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10],
            &[0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3],
            &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],
            &[0; 7],
        ];
        let message = EncodedStep::of(&step);
        assert_eq!(message.body.to_vec(), expected.concat());
        assert_eq!((message.head, message.mixes, message.answer), ([b'c', 1], false, 15));
    }

    #[test]
    fn a_step_is_plain_if_it_takes_hits_of_a_meter_without_a_lease() {
        let close = Some(Lease::Close(LeaseId::from_bits(1)));
        let open = Some(Lease::Open { id: LeaseId::from_bits(1), until: Micros(9) });
        let tier = EntriesTier { after: Micros(1), window: Micros(1), max: 1 };
        let log = step(1, None, Params::Log([tier].into_iter().collect()));
        let plain = [count(1, None), pair(), count(0, None), count(-1, None)];
        let others = [count(1, open), count(1, close), count(0, open), log];
        let told = |steps: [Step; 4]| steps.map(|step| EncodedStep::of(&step).plain);
        assert_eq!(told(plain), [true, true, false, false]);
        assert_eq!(told(others), [false; 4]);
    }

    #[test]
    fn a_lease_is_opened_by_hits_that_are_taken_only() {
        let open = |id| Some(Lease::Open { id: LeaseId::from_bits(id), until: Micros(9) });
        let acts: Vec<u8> =
            [(5, None), (0, None), (-5, None), (5, open(1)), (0, open(1)), (-5, open(1))]
                .map(|(hits, lease)| body(&count(hits, lease))[0])
                .into();
        assert_eq!(acts, [0, 0, 1, 2, 0, 1]);
    }

    #[test]
    fn a_number_too_large_for_a_double_is_cut_rather_than_wrapped() {
        assert_eq!(body(&count(1, None))[2..9], INTEGER_END.to_be_bytes()[1..]);
    }

    fn answer(passes: &[u8], numbers: &[u64]) -> Vec<u8> {
        let numbers = numbers.iter().flat_map(|number| number.to_be_bytes()[1..].to_vec());
        passes.iter().copied().chain(numbers).collect()
    }

    #[test]
    fn an_answer_is_read_per_tier_and_allowed_only_by_all() {
        let reply = answer(&[1, 0], &[10, 20, 30, 11, 21, INTEGER_END - 1]);
        let outcome = decode(&pair(), &reply).expect("as many as the tiers need");
        let seen = |allowed, a, b, c| TierResult { allowed, a, b, c };
        let second = seen(false, 11, 21, INTEGER_END - 1);
        assert_eq!(outcome.tiers[..], [seen(true, 10, 20, 30), second]);
        assert!(!outcome.allowed);
        let outcome = decode(&count(1, None), &answer(&[1], &[7, 8])).expect("two for a count");
        assert_eq!((outcome.allowed, outcome.tiers[0]), (true, seen(true, 7, 8, 0)));
    }

    #[test]
    fn what_no_step_answers_is_malformed() {
        let replies = [
            vec![],
            answer(&[1], &[1]),
            answer(&[1], &[1, 2, 3]),
            answer(&[2], &[1, 1]),
            answer(&[255], &[1, 1]),
            answer(&[1], &[INTEGER_END, 1]),
            answer(&[1], &[1, u64::MAX]),
        ];
        for reply in replies {
            assert_eq!(decode(&count(1, None), &reply), Err(Malformed), "{reply:?}");
        }
        let none = step(1, None, Params::Log([].into_iter().collect()));
        assert_eq!(decode(&none, &[]), Err(Malformed), "a step without tiers decides nothing");
        let tier = EntriesTier { after: Micros(1), window: Micros(1), max: 1 };
        let many = step(1, None, Params::Slots([tier; 17].into_iter().collect()));
        assert_eq!(EncodedStep::of(&many).head[1], 16);
        let short = answer(&[1; 16], &[1; 32]);
        assert_eq!(decode(&many, &short), Err(Malformed), "more tiers than a script takes");
    }

    #[test]
    fn every_script_is_named_after_its_text() {
        for (index, script) in Script::ALL.into_iter().enumerate() {
            assert!(script.source().contains("return run_all(run"), "{script:?} is cut off");
            assert_eq!(script.sha1().len(), 40);
            let others = Script::ALL.into_iter().skip(index + 1);
            assert!(others.into_iter().all(|other| other.sha1() != script.sha1()));
        }
    }
}
