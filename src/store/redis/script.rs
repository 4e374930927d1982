//! The interface of the Lua scripts: which script runs a step, its argument, and its reply.
//!
//! A script, or the function that does the same, takes counters, the `KEYS`, and runs, the `ARGV`. A run is
//! first the two bytes that its steps share, then each step as [`EncodedStep::of`] encodes it. The reply is one
//! string of [`EncodedStep::reply_len`] bytes per step, in the order of the counters. Steps that are sent as one
//! and a number have another reply. `lua/protocol.lua` describes the forms of a call, and the header of each file
//! in `lua/` its part.

use std::sync::LazyLock;

use smallvec::SmallVec;

use crate::step::{
    GcraTime, INTEGER_END, Lease, Outcome, SLIDING_COUNT_END, Step, StepParams, TIERS_MAX,
    TierResult,
};

mod text;

pub use text::Library;

/// A Lua script. Each kind of state has one, and quotas.
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
    /// Quotas, which are no counters. `src/store/redis/quota.rs` has its argument and its reply.
    Quota,
}

/// The operation of a step: the first byte of its encoding.
#[derive(Clone, Copy)]
enum Action {
    /// Take the hits; 0 hits are a peek.
    Take = 0,
    /// Give back the hits.
    GiveBack = 1,
    /// Take the hits under a lease.
    Open = 2,
    /// Close a lease.
    Close = 3,
}

/// A reply that no step of this version can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed script reply; check that only this version of weir uses its keys")]
pub struct MalformedReply;

impl Script {
    /// The scripts that run steps.
    pub const STEPS: [Script; 4] =
        [Script::FixedWindow, Script::SlidingWindow, Script::Gcra, Script::Entries];

    /// Every script.
    pub const ALL: [Script; 5] =
        [Script::FixedWindow, Script::SlidingWindow, Script::Gcra, Script::Entries, Script::Quota];

    /// The script that runs `step`.
    pub fn of(step: &Step) -> Script {
        match step.params {
            StepParams::FixedWindow(_) => Script::FixedWindow,
            StepParams::SlidingWindow(_) => Script::SlidingWindow,
            StepParams::Gcra(_) => Script::Gcra,
            StepParams::Log(_) | StepParams::Slots(_) => Script::Entries,
        }
    }

    /// The script's source, for `SCRIPT LOAD`. Comments cost nothing: calls name the SHA-1.
    pub fn source(self) -> &'static str {
        &FORMS.sources[self as usize]
    }

    /// The SHA-1 of the source, 40 hexadecimal digits, for `EVALSHA`.
    pub fn sha1(self) -> &'static str {
        &FORMS.hashes[self as usize]
    }

    /// The function of [`library`] that does the same, for `FCALL`.
    pub fn function(self) -> &'static str {
        &FORMS.functions[self as usize]
    }
}

/// The library with a function per script, for `FUNCTION LOAD`.
pub fn library() -> &'static Library {
    &FORMS.library
}

/// The forms in which nodes get the scripts, with the names for calls in the order of
/// [`Script::ALL`].
struct Forms {
    sources: [String; 5],
    hashes: [String; 5],
    library: Library,
    functions: [String; 5],
}

static FORMS: LazyLock<Forms> = LazyLock::new(|| {
    let sources = Script::ALL.map(text::script);
    let hashes = sources.each_ref().map(|it| sha1_smol::Sha1::from(it).digest().to_string());
    let library = Library::assemble();
    let functions = Script::ALL.map(|script| library.function(script));
    Forms { sources, hashes, library, functions }
});

/// A step in the encoding that a script reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedStep {
    /// The script that runs the step.
    pub script: Script,
    /// The bytes that all steps of a run share: the state's letter and the number of tiers.
    pub head: [u8; 2],
    /// Whether other steps may join the step's run.
    pub combinable: bool,
    /// Whether the step takes hits without a lease on a state of fixed size. Such a counter has no
    /// reservations, so its value is small.
    pub plain: bool,
    /// The rest of the encoding.
    pub body: SmallVec<[u8; BODY]>,
    /// Length of the reply in bytes.
    pub reply_len: usize,
}

/// Marks a refund that applies to every arrival time. It is later than every time of a bucket.
const NO_TIME: GcraTime = GcraTime { micros: INTEGER_END, part: 0 };

/// Bytes of a step with one tier; more tiers allocate.
const BODY: usize = 16 + 8 * 7 + 15;

impl EncodedStep {
    /// Encodes `step`.
    pub fn of(step: &Step) -> EncodedStep {
        let (action, lease) = match step.lease {
            Some(Lease::Close(id)) => (Action::Close, Some((id, None))),
            // A lease has no meaning on a peek or a refund.
            Some(Lease::Open { id, until }) if step.hits > 0 => {
                (Action::Open, Some((id, Some(until))))
            }
            _ if step.hits < 0 => (Action::GiveBack, None),
            _ => (Action::Take, None),
        };
        let mut body = SmallVec::new();
        body.extend_from_slice(&[action as u8, u8::from(step.count_denied)]);
        push_numbers(&mut body, &[step.now.0, step.hits.unsigned_abs()]);
        encode_tiers(step, &mut body);
        if let Some((id, until)) = lease {
            body.extend_from_slice(&id.0.get().to_be_bytes());
            push_numbers(&mut body, &[until.unwrap_or_default().0]);
        }
        let script = Script::of(step);
        EncodedStep {
            script,
            head: [letter(step), tiers(step).min(TIERS_MAX) as u8],
            // Reservations follow a fixed-size state and are changed in place.
            combinable: lease.is_none() || script == Script::Entries,
            plain: matches!(action, Action::Take) && step.hits > 0 && script != Script::Entries,
            body,
            reply_len: reply_len(step),
        }
    }
}

fn encode_tiers(step: &Step, body: &mut SmallVec<[u8; BODY]>) {
    match &step.params {
        StepParams::FixedWindow(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                let kept_until = tier.start.saturating_add(tier.kept_for);
                push_numbers(body, &[tier.start.0, kept_until.0, tier.max]);
            }
        }
        StepParams::SlidingWindow(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                push_numbers(body, &[tier.start.0, tier.window.0, tier.rest.0, tier.max]);
            }
        }
        StepParams::Gcra(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                push_numbers(body, &[tier.now.0, tier.parts, tier.cost.micros, tier.cost.part]);
                push_numbers(body, &[tier.latest_allowed.micros, tier.latest_allowed.part]);
                // One pair for both: a refund has no denied hits.
                let bound = if step.hits < 0 {
                    tier.refund_only_at.unwrap_or(NO_TIME)
                } else {
                    tier.latest_denied
                };
                push_numbers(body, &[bound.micros, bound.part]);
            }
        }
        StepParams::Log(tiers) | StepParams::Slots(tiers) => {
            for tier in tiers.iter().take(TIERS_MAX) {
                push_numbers(body, &[tier.after.0, tier.window.0, tier.max]);
            }
        }
    }
}

/// The letter that identifies the kind of state in a value.
fn letter(step: &Step) -> u8 {
    match step.params {
        StepParams::FixedWindow(_) => b'c',
        StepParams::SlidingWindow(_) => b'p',
        StepParams::Gcra(_) => b't',
        StepParams::Log(_) => b'l',
        StepParams::Slots(_) => b's',
    }
}

/// Appends each number in seven bytes, big-endian: `I7` in the scripts.
fn push_numbers(body: &mut SmallVec<[u8; BODY]>, numbers: &[u64]) {
    for &number in numbers {
        // Steps stay below INTEGER_END, except the limit ALREADY_ADMITTED, which equals it. The
        // clamp keeps any other number exact in a double.
        body.extend_from_slice(&number.min(INTEGER_END).to_be_bytes()[1..]);
    }
}

/// Length of the reply to `step`: one byte per tier, and seven per number of each tier.
fn reply_len(step: &Step) -> usize {
    tiers(step) * (1 + 7 * numbers_per_tier(step))
}

fn tiers(step: &Step) -> usize {
    match &step.params {
        StepParams::FixedWindow(tiers) => tiers.len(),
        StepParams::SlidingWindow(tiers) => tiers.len(),
        StepParams::Gcra(tiers) => tiers.len(),
        StepParams::Log(tiers) | StepParams::Slots(tiers) => tiers.len(),
    }
}

fn numbers_per_tier(step: &Step) -> usize {
    if matches!(step.params, StepParams::SlidingWindow(_)) { 3 } else { 2 }
}

/// Decodes the reply to `step`, which has [`EncodedStep::reply_len`] bytes.
///
/// # Errors
/// [`MalformedReply`] when the length or a number cannot come from a script of this version.
pub fn decode(step: &Step, reply: &[u8]) -> Result<Outcome, MalformedReply> {
    if reply.is_empty() || reply.len() != reply_len(step) {
        return Err(MalformedReply);
    }
    let (passes, numbers) = reply.split_at(tiers(step));
    let is_sliding = matches!(step.params, StepParams::SlidingWindow(_));
    let number = |bytes: Option<&[u8]>| {
        let mut whole = [0; 8];
        whole[1..].copy_from_slice(bytes.unwrap_or(&[0; 7]));
        let number = u64::from_be_bytes(whole);
        if number < INTEGER_END { Ok(number) } else { Err(MalformedReply) }
    };
    let tiers =
        passes.iter().zip(numbers.chunks(7 * numbers_per_tier(step))).map(|(passes, numbers)| {
            let allowed = match passes {
                0 => false,
                1 => true,
                _ => return Err(MalformedReply),
            };
            let mut numbers = numbers.chunks_exact(7);
            let mut next = || number(numbers.next());
            let numbers = [next()?, next()?, next()?];
            // Instances apply steps to this state too, and rely on the bound of its counts.
            if is_sliding && numbers[0].max(numbers[1]) >= SLIDING_COUNT_END {
                return Err(MalformedReply);
            }
            Ok(TierResult { allowed, numbers })
        });
    let tiers: SmallVec<[TierResult; 1]> = tiers.collect::<Result<_, _>>()?;
    Ok(Outcome { allowed: tiers.iter().all(|tier| tier.allowed), tiers })
}

#[cfg(test)]
mod tests;
