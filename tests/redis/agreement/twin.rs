//! Compares each step of `Step::apply` with the same step by the scripts on a real Redis.

use std::io;

use weir::step::{INTEGER_END, Lease, Outcome, State, Step, StepParams};
use weir::store::redis::batch::ScriptCall;
use weir::store::redis::script::{self, EncodedStep, Library, Script};

use crate::agreement::walk::Operation;
use crate::support::redis::resp::{Client, Reply};

mod together;

pub(crate) use together::{BatchFigures, BatchedWalks};

/// Milliseconds that a value is kept after its expiry: `GRACE_MS` of the scripts.
const GRACE_MS: u64 = 1_000;

/// A state over this size is not compared with the one before the step.
const LARGE_BYTES: usize = 100_000;

/// The expected outcome of one step.
struct Expected {
    outcome: Outcome,
    /// Whether the script must not write, so that a read-only call is enough.
    reads_only: bool,
    life: Life,
}

/// The expected time to live of the value after its last write.
#[derive(Clone, Copy, Debug)]
enum Life {
    /// The value does not exist.
    None,
    /// Milliseconds.
    Ms(u64),
    /// A large state is not compared, so a write is not detected.
    Unknown,
}

impl Life {
    /// The value is written by this step and kept until this instant.
    fn from(until: f64, step: &Step) -> Life {
        let left = ((until - step.now.0 as f64).max(0.0) + 999.0) / 1_000.0;
        Life::Ms(left as u64 + GRACE_MS)
    }
}

/// How steps are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By scripts.
    Script,
    /// By functions of the library, whose locals stay from call to call.
    Function,
    /// By both in turns, on the same counters.
    InTurns,
}

impl Form {
    pub(crate) const ALL: [Form; 3] = [Form::Script, Form::Function, Form::InTurns];

    /// The first words of call number `index`. Only a script can be called so that it must not write.
    fn words(self, index: usize, script: Script, reads_only: bool) -> [&'static [u8]; 2] {
        let is_function = match self {
            Form::Script => false,
            Form::Function => true,
            Form::InTurns => index.is_multiple_of(2),
        };
        match (is_function, reads_only) {
            (true, _) => [b"FCALL", script.function().as_bytes()],
            (false, true) => [b"EVALSHA_RO", script.sha1().as_bytes()],
            (false, false) => [b"EVALSHA", script.sha1().as_bytes()],
        }
    }
}

/// A connection to a server on which the scripts and the library are loaded.
pub(crate) struct Twin {
    client: Client,
    /// How the next steps are called.
    pub(crate) form: Form,
}

impl Twin {
    /// Loads the scripts and the library.
    pub(crate) fn new(mut client: Client) -> Twin {
        for script in Script::ALL {
            let loaded = client.try_run(&["SCRIPT", "LOAD", script.source()]).expect("an answer");
            assert_eq!(loaded.text(), script.sha1(), "{script:?} has another name");
        }
        let Library { name, text } = script::library();
        let loaded = client.try_run(&["FUNCTION", "LOAD", text]).expect("an answer");
        assert_eq!(loaded.text(), *name, "the library has another name");
        Twin { client, form: Form::Script }
    }

    /// The first difference between Rust and Lua for each walk: the index of the operation, and
    /// what differs. All walks are sent at once.
    pub(crate) fn compare(&mut self, walks: &[Vec<Operation>]) -> Vec<Option<(usize, String)>> {
        let expected: Vec<Vec<Expected>> = walks.iter().map(|walk| expect(walk)).collect();
        for (number, (walk, expected)) in walks.iter().zip(&expected).enumerate() {
            self.queue(number, walk, expected);
        }
        self.client.send().expect("Redis listens");
        let differences = walks
            .iter()
            .zip(&expected)
            .map(|(walk, expected)| self.read_differences(walk, expected).expect("Redis answers"));
        differences.collect()
    }

    /// One walk as one transaction, in which no value expires: Redis stops the clock for expiry.
    fn queue(&mut self, number: usize, walk: &[Operation], expected: &[Expected]) {
        let key = format!("walk:{number}").into_bytes();
        self.client.queue(&[b"MULTI"]);
        self.client.queue(&[b"DEL", &key]);
        self.client.queue(&[b"TIME"]);
        for (index, (operation, expected)) in walk.iter().zip(expected).enumerate() {
            let step = operation.step();
            let [call, name] = self.form.words(index, Script::of(&step), expected.reads_only);
            self.client.queue(&[call, name, b"1", &key, &argument(&step)]);
            self.client.queue(&[b"PTTL", &key]);
        }
        self.client.queue(&[b"TIME"]);
        self.client.queue(&[b"DEL", &key]);
        self.client.queue(&[b"EXEC"]);
    }

    fn read_differences(
        &mut self,
        walk: &[Operation],
        expected: &[Expected],
    ) -> io::Result<Option<(usize, String)>> {
        for _ in 0..2 * walk.len() + 5 {
            self.client.read()?; // OK, then QUEUED
        }
        let Reply::List(replies) = self.client.read()? else {
            panic!("a transaction answers with a list");
        };
        // Every value is written and read between these two reads of the server's clock.
        let took_ms = millis(&replies[replies.len() - 2]) - millis(&replies[1]);
        let pairs = replies[2..].chunks(2).zip(walk).zip(expected);
        for (index, ((pair, operation), expected)) in pairs.enumerate() {
            if let Some(difference) = difference(operation, expected, &pair[0], &pair[1], took_ms) {
                return Ok(Some((index, difference)));
            }
        }
        Ok(None)
    }
}

fn argument(step: &Step) -> Vec<u8> {
    let call = ScriptCall::single("", &EncodedStep::of(step), ());
    call.arguments().flatten().copied().collect()
}

fn millis(time: &Reply) -> u64 {
    let Reply::List(parts) = time else { panic!("TIME answers with a list: {time:?}") };
    let number = |part: &Reply| part.text().parse::<u64>().expect("a number");
    number(&parts[0]) * 1_000 + number(&parts[1]) / 1_000
}

/// The expected outcome, by Rust.
fn expect(walk: &[Operation]) -> Vec<Expected> {
    let mut state: Option<State> = None;
    let (mut life, mut till) = (Life::None, 0.0);
    let step = |operation: &Operation| {
        let step = operation.step();
        let large = state.as_ref().is_some_and(|state| state.heap_bytes() > LARGE_BYTES);
        let before = if large { None } else { Some(state.clone()) };
        let in_place = is_plain(&step, state.as_ref());
        let outcome = step.apply(&mut state);
        for seen in &outcome.tiers {
            assert!(seen.numbers.iter().all(|&number| number < INTEGER_END));
        }
        let counted = step.hits > 0
            && (outcome.allowed || step.count_denied)
            && !matches!(step.lease, Some(Lease::Close(_)));
        // Counted denials that replace as many equal entries change nothing but are written.
        let changed = before.map(|before| state != before);
        let wrote = match changed {
            Some(changed) => Some(changed || (counted && Script::of(&step) == Script::Entries)),
            // The last reservation ended, so the value was written again.
            None => (counted || is_plain(&step, state.as_ref())).then_some(true),
        };
        if let (Some(true), Some(state)) = (wrote, &state) {
            let over = step.expires_at(state).0 as f64;
            if !is_plain(&step, Some(state)) {
                life = Life::from(over, &step);
            } else if !in_place || over > till {
                till = kept_until(&step, over);
                life = Life::from(till, &step);
            }
        } else if wrote.is_none() {
            life = Life::Unknown;
        }
        Expected { outcome, reads_only: wrote == Some(false), life }
    };
    walk.iter().map(step).collect()
}

/// The state of a tier as this step keeps it, without reservations. The scripts keep its time to
/// live where that is long enough.
fn is_plain(step: &Step, state: Option<&State>) -> bool {
    match (&step.params, state) {
        (StepParams::FixedWindow(tiers), Some(State::FixedWindow(kept))) => {
            tiers.len() == kept.as_slice().len()
        }
        (StepParams::SlidingWindow(tiers), Some(State::SlidingWindow(kept))) => {
            tiers.len() == kept.as_slice().len()
        }
        (StepParams::Gcra(tiers), Some(State::Gcra(kept))) => tiers.len() == kept.as_slice().len(),
        _ => false,
    }
}

/// The twin of `keep_until` in doubles, like Lua. Instants in the far future exceed 2^53, and a
/// script has only doubles.
fn kept_until(step: &Step, over: f64) -> f64 {
    let spare = 4e6 + ((over - step.now.0 as f64).max(0.0) / 8.0).floor();
    over + if matches!(step.params, StepParams::Gcra(_)) { spare } else { 0.0 }
}

fn difference(
    operation: &Operation,
    expected: &Expected,
    reply: &Reply,
    ttl: &Reply,
    took_ms: u64,
) -> Option<String> {
    let Reply::Bulk(bytes) = reply else {
        let how = if expected.reads_only { "writing nothing" } else { "writing" };
        return Some(format!("Rust says {:?}, {how}; Lua says {reply:?}", expected.outcome));
    };
    let got = script::decode(&operation.step(), bytes);
    if got.as_ref() != Ok(&expected.outcome) {
        return Some(format!("Rust says {:?}; Lua says {got:?}: {bytes:?}", expected.outcome));
    }
    let live = as_long_as(expected.life, ttl, took_ms);
    (!live).then(|| format!("expected time to live {:?}; PTTL: {ttl:?}", expected.life))
}

/// Whether the time to live is as expected, within the `took_ms` that reading it took.
fn as_long_as(life: Life, ttl: &Reply, took_ms: u64) -> bool {
    match (life, ttl) {
        (Life::None, Reply::Integer(-2)) => true,
        (Life::Unknown, Reply::Integer(0..)) => true,
        (Life::Ms(most), Reply::Integer(left)) => {
            u64::try_from(*left).is_ok_and(|left| left <= most && left + took_ms >= most)
        }
        _ => false,
    }
}
