//! Batches: walks on several counters whose steps share few calls, compared with the same steps one
//! by one in Rust.

use weir::step::Outcome;
use weir::store::redis::batch::{REPEATED_WITHIN, ScriptCall, StepBatch, StepReply};
use weir::store::redis::script::{self, EncodedStep};
use weir::time::Micros;

use super::{Expected, Life, Twin, as_long_as, expect, millis};
use crate::agreement::walk::{Operation, Rng};
use crate::support::redis::resp::Reply;

/// Counters per batch.
const COUNTERS: usize = 6;

/// The index of a counter and of the operation in its walk.
type Place = (usize, usize);

/// Walks, one per counter, and the steps of each round trip.
pub(crate) struct BatchedWalks {
    walks: Vec<Vec<Operation>>,
    round_trips: Vec<Vec<Place>>,
}

/// Calls of one round trip, with the place of every step.
type Calls = Vec<ScriptCall<String, Place>>;

impl BatchedWalks {
    /// Walks from `walk`, cut into round trips at random: sometimes nearly equal ones side by side, otherwise trips
    /// of up to forty steps.
    pub(crate) fn new(
        rng: &mut Rng,
        mut walk: impl FnMut(&mut Rng) -> Vec<Operation>,
    ) -> BatchedWalks {
        if rng.below(3) == 0 {
            return BatchedWalks::side_by_side(&walk(rng), rng);
        }
        let walks: Vec<Vec<Operation>> = (0..COUNTERS).map(|_| walk(rng)).collect();
        let mut next = [0; COUNTERS];
        let mut round_trips = Vec::new();
        // Some batches put the steps that allow one `MGET` into separate calls.
        let apart = rng.below(3) == 0;
        let row = if apart { 2 } else { 6 };
        while (0..COUNTERS).any(|counter| next[counter] < walks[counter].len()) {
            let mut trip: Vec<Place> = Vec::new();
            let mut plain = true;
            for _ in 0..=rng.below(40) {
                // Often several steps of the same counter in a row.
                let counter = rng.below(COUNTERS as u64) as usize;
                for _ in 0..=rng.below(row) {
                    let Some(operation) = walks[counter].get(next[counter]) else { break };
                    let other = plain != EncodedStep::of(&operation.step()).plain;
                    if apart && other && !trip.is_empty() {
                        break;
                    }
                    plain ^= other;
                    trip.push((counter, next[counter]));
                    next[counter] += 1;
                }
            }
            round_trips.push(trip);
        }
        BatchedWalks { walks, round_trips }
    }

    /// The same walk on every counter, with some operations left out or a little later. A round trip has one or a
    /// few operations of the walk. So the steps of most counters are equal.
    fn side_by_side(walk: &[Operation], rng: &mut Rng) -> BatchedWalks {
        let mut walks = vec![Vec::new(); COUNTERS];
        let (mut round_trips, mut trip) = (Vec::new(), Vec::new());
        for operation in walk {
            for (counter, own) in walks.iter_mut().enumerate() {
                if rng.below(4) == 0 {
                    continue;
                }
                let later = if operation.lease.is_none() { rng.below(3) } else { 0 };
                trip.push((counter, own.len()));
                own.push(Operation { now: Micros(operation.now.0 + later), ..operation.clone() });
            }
            if rng.below(3) > 0 {
                round_trips.push(std::mem::take(&mut trip));
            }
        }
        round_trips.push(trip);
        BatchedWalks { walks, round_trips }
    }

    /// The same walk on every counter. A round trip has every operation `times` times.
    pub(crate) fn alike(walk: &[Operation], times: usize) -> BatchedWalks {
        let trip = |index: usize| {
            let repeated = index * times..(index + 1) * times;
            (0..COUNTERS)
                .flat_map(|counter| repeated.clone().map(move |at| (counter, at)))
                .collect()
        };
        let repeated = walk.iter().flat_map(|operation| vec![operation.clone(); times]).collect();
        BatchedWalks {
            walks: vec![repeated; COUNTERS],
            round_trips: (0..walk.len()).map(trip).collect(),
        }
    }

    /// Number of steps.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.walks.iter().flatten()
    }

    /// The fewest calls for each round trip.
    fn calls(&self) -> Calls {
        let mut all = Vec::new();
        for trip in &self.round_trips {
            let mut rest = &trip[..];
            while !rest.is_empty() {
                let mut batch = StepBatch::new(usize::MAX);
                while let [(counter, index), after @ ..] = rest {
                    let message = EncodedStep::of(&self.walks[*counter][*index].step());
                    let place = (*counter, *index);
                    if batch.add(0, &key(*counter), &message, place).is_err() {
                        break;
                    }
                    rest = after;
                }
                all.extend(batch.into_calls());
            }
        }
        all
    }

    /// The steps in the order in which they are sent, as text.
    pub(crate) fn lines(&self) -> String {
        let line = |&(counter, index): &Place| {
            format!("  {counter}.{index} {}\n", self.walks[counter][index])
        };
        let trip =
            |trip: &Vec<Place>| format!("together\n{}", trip.iter().map(line).collect::<String>());
        self.round_trips.iter().map(trip).collect()
    }
}

fn key(counter: usize) -> String {
    format!("together:{counter}")
}

/// Statistics for the figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchFigures {
    pub(crate) steps: usize,
    pub(crate) calls: usize,
    /// Steps that were combined with others.
    pub(crate) shared: usize,
    /// Calls that read all their counters at once.
    pub(crate) at_once: usize,
    /// Calls in which counters share an argument.
    pub(crate) grouped: usize,
}

impl Twin {
    /// The first difference between single steps in Rust and batched steps in Lua.
    pub(crate) fn run_batches(&mut self, batched: &BatchedWalks) -> Result<BatchFigures, String> {
        let expected: Vec<Vec<Expected>> = batched.walks.iter().map(|walk| expect(walk)).collect();
        let calls = batched.calls();
        let mut figures = BatchFigures { calls: calls.len(), ..BatchFigures::default() };
        // In a transaction no value expires: Redis stops the clock for expiry.
        self.client.queue(&[b"MULTI"]);
        (0..COUNTERS).for_each(|counter| self.client.queue(&[b"DEL", key(counter).as_bytes()]));
        self.client.queue(&[b"TIME"]);
        for (index, call) in calls.iter().enumerate() {
            figures.steps += call.steps();
            figures.shared += call.combined();
            let reads_only =
                call.items().all(|&(counter, index)| expected[counter][index].reads_only);
            let (counters, arguments) = (call.keys().count(), call.arguments().count());
            let count = counters.to_string();
            figures.at_once += usize::from(arguments != counters);
            figures.grouped += usize::from(arguments < counters);
            let [way, name] = self.form.words(index, call.script(), reads_only);
            let mut command = vec![way, name, count.as_bytes()];
            command.extend(call.keys().map(|key| key.as_bytes()));
            command.extend(call.arguments());
            self.client.queue(&command);
        }
        (0..COUNTERS).for_each(|counter| self.client.queue(&[b"PTTL", key(counter).as_bytes()]));
        self.client.queue(&[b"TIME"]);
        self.client.queue(&[b"EXEC"]);
        self.client.send().expect("Redis listens");
        for _ in 0..2 * COUNTERS + 3 + calls.len() {
            self.client.read().expect("OK, then QUEUED");
        }
        let Reply::List(replies) = self.client.read().expect("Redis answers") else {
            panic!("a transaction answers with a list");
        };
        let replies = &replies[COUNTERS..];
        let took_ms = millis(&replies[replies.len() - 1]) - millis(&replies[0]);
        let (answers, lives) = replies[1..replies.len() - 1].split_at(calls.len());
        let mut found = Ok(());
        for (call, reply) in calls.into_iter().zip(answers) {
            let Reply::Bulk(answer) = reply else { return Err(format!("Lua says {reply:?}")) };
            call.split_reply(answer, |place, reply| {
                let operation = &batched.walks[place.0][place.1];
                let right = &expected[place.0][place.1].outcome;
                if found.is_ok() {
                    found = compare(operation, right, reply)
                        .map_err(|what| format!("{place:?}: {what}"));
                }
            });
        }
        found?;
        for ((expected, left), counter) in expected.iter().zip(lives).zip(0..) {
            let Some(last) = expected.last() else { continue };
            // Steps that are sent as one set the time to live by one instant.
            let late = took_ms + 2 * REPEATED_WITHIN.0.div_ceil(1_000);
            let live = match (last.life, left) {
                (Life::Ms(most), Reply::Integer(left)) => {
                    u64::try_from(*left).is_ok_and(|left| left.abs_diff(most) <= late)
                }
                (life, left) => as_long_as(life, left, took_ms),
            };
            if !live {
                return Err(format!(
                    "{counter}: expected time to live {:?}; PTTL: {left:?}",
                    last.life
                ));
            }
        }
        Ok(figures)
    }
}

impl Twin {
    /// Runs the same operations on each of `count` counters, one call per operation. Returns the
    /// first difference.
    pub(crate) fn compare_many(
        &mut self,
        operations: &[Operation],
        count: usize,
    ) -> Result<(), String> {
        let mut state = None;
        for (index, operation) in operations.iter().enumerate() {
            let (message, right) =
                (EncodedStep::of(&operation.step()), operation.step().apply(&mut state));
            let mut batch = StepBatch::new(count);
            for counter in 0..count {
                batch.add(0, &format!("many:{counter}"), &message, ()).expect("there is room");
            }
            let call = batch.into_calls().remove(0);
            let keys = count.to_string();
            let [way, name] = self.form.words(index, call.script(), false);
            let mut command = vec![way, name, keys.as_bytes()];
            command.extend(call.keys().map(|key| key.as_bytes()));
            command.extend(call.arguments());
            self.client.queue(&command);
            self.client.send().expect("Redis listens");
            let reply = self.client.read().expect("Redis answers");
            let Reply::Bulk(answer) = reply else { return Err(format!("Lua says {reply:?}")) };
            let (mut found, mut dealt) = (Ok(()), 0);
            call.split_reply(&answer, |(), reply| {
                dealt += 1;
                found = found.clone().and_then(|()| compare(operation, &right, reply));
            });
            assert_eq!(dealt, count);
            found?;
        }
        Ok(())
    }
}

fn compare(operation: &Operation, right: &Outcome, reply: StepReply<'_>) -> Result<(), String> {
    let StepReply::Outcome(bytes) = reply else { return Err(format!("{reply:?}")) };
    let got = script::decode(&operation.step(), bytes);
    if got.as_ref() == Ok(right) {
        return Ok(());
    }
    Err(format!("Rust says {right:?}; Lua says {got:?}: {bytes:?}"))
}
