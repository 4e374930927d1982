//! A batch: steps that leave together, as few calls of scripts as can carry them.
//!
//! Steps on one counter stand together in a run, in the order in which they came; so a script reads
//! and writes the counter once for all of them.
//!
//! **Invariant:** in a batch a counter belongs to one call, so its steps cannot overtake each other.

use std::hash::Hash;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::script::{EncodedStep, Script};

/// Answers for a run whose counter could not be read: nothing was done.
const REFUSED: u8 = 2;

/// The most steps on holds in one call: such a step may take hundreds of microseconds, and a script
/// keeps all others waiting.
const HOLDS_MAX: usize = 16;

/// Steps on counters named by `K`, each with an item that is given back with its answer.
#[derive(Debug)]
pub struct Batch<K, T> {
    calls: Vec<ScriptCall<K, T>>,
    /// The last run of each counter: which call, which run of it.
    places: HashMap<K, (usize, usize)>,
    max: usize,
}

/// One call of one script.
#[derive(Debug)]
pub struct ScriptCall<K, T> {
    script: Script,
    group: u16,
    runs: Vec<Run<K, T>>,
    steps: usize,
    /// Steps that share a run with others.
    shared: usize,
    /// All steps are plain, and no counter has two runs.
    plain: bool,
}

/// Steps on one counter.
#[derive(Debug)]
struct Run<K, T> {
    key: K,
    head: [u8; 2],
    mixes: bool,
    argument: Vec<u8>,
    /// Each step's item, and the bytes that answer it.
    steps: SmallVec<[(T, usize); 1]>,
}

/// What a call's answer says about one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepReply<'a> {
    /// These bytes, for [`decode`](super::script::decode).
    Outcome(&'a [u8]),
    /// It did not run, because the counter cannot be read. Asked alone it hears why.
    Refused,
    /// Nothing that can be understood. It may have run.
    Malformed,
}

impl<K: Clone + Eq + Hash + AsRef<[u8]>, T> Batch<K, T> {
    /// An empty one, with room for `max` steps per call.
    pub fn new(max: usize) -> Batch<K, T> {
        Batch { calls: Vec::new(), places: HashMap::new(), max: max.max(1) }
    }

    /// Adds a step on the counter `key`. Only counters of one `group` travel in one call.
    ///
    /// # Errors
    /// Gives `item` back if the step must leave later: there is no room for it, or the counter's
    /// other steps are in a call of another script.
    pub fn add(&mut self, group: u16, key: &K, message: &EncodedStep, item: T) -> Result<(), T> {
        let known = self.places.get(key).copied();
        let index = match known {
            Some((index, _)) if self.calls[index].script != message.script => return Err(item),
            Some((index, _)) => index,
            None => self.call(message.script, group),
        };
        let call = &mut self.calls[index];
        if call.steps >= call.room(self.max) {
            return Err(item);
        }
        call.steps += 1;
        call.plain &= message.plain;
        if let Some((_, run)) = known
            && call.runs[run].takes(message)
        {
            let run = &mut call.runs[run];
            run.argument.extend_from_slice(&message.body);
            call.shared += if run.steps.len() == 1 { 2 } else { 1 };
            run.steps.push((item, message.answer));
            return Ok(());
        }
        // What the first run wrote must be read again.
        call.plain &= known.is_none();
        self.places.insert(key.clone(), (index, call.runs.len()));
        call.runs.push(Run::new(key.clone(), message, item));
        Ok(())
    }

    fn call(&mut self, script: Script, group: u16) -> usize {
        // The newest one: earlier ones of the same kind are full.
        let same = |call: &ScriptCall<K, T>| call.script == script && call.group == group;
        let found = self.calls.iter().rposition(same);
        let full = |index: &usize| {
            let call: &ScriptCall<K, T> = &self.calls[*index];
            call.steps >= call.room(self.max)
        };
        found.filter(|index| !full(index)).unwrap_or_else(|| {
            let (runs, steps, shared, plain) = (Vec::new(), 0, 0, true);
            self.calls.push(ScriptCall { script, group, runs, steps, shared, plain });
            self.calls.len() - 1
        })
    }

    /// The calls, in the order in which they shall be sent.
    pub fn into_calls(self) -> Vec<ScriptCall<K, T>> {
        self.calls
    }
}

impl<K: AsRef<[u8]>, T> Run<K, T> {
    fn new(key: K, message: &EncodedStep, item: T) -> Run<K, T> {
        let mut argument = Vec::with_capacity(2 + message.body.len());
        argument.extend(message.head);
        argument.extend_from_slice(&message.body);
        let steps = [(item, message.answer)].into_iter().collect();
        Run { key, head: message.head, mixes: message.mixes, argument, steps }
    }

    fn takes(&self, message: &EncodedStep) -> bool {
        self.mixes && message.mixes && self.head == message.head
    }
}

impl<K: AsRef<[u8]>, T> ScriptCall<K, T> {
    /// Of one step.
    pub fn alone(key: K, message: &EncodedStep, item: T) -> ScriptCall<K, T> {
        let runs = vec![Run::new(key, message, item)];
        let plain = message.plain;
        ScriptCall { script: message.script, group: 0, runs, steps: 1, shared: 0, plain }
    }

    fn room(&self, max: usize) -> usize {
        if self.script == Script::Entries { max.min(HOLDS_MAX) } else { max }
    }

    /// The script to call.
    pub fn script(&self) -> Script {
        self.script
    }

    /// How many steps it carries.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// How many of them share a run.
    pub fn shared(&self) -> usize {
        self.shared
    }

    /// `KEYS`.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.runs.iter().map(|run| &run.key)
    }

    /// `ARGV`.
    pub fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let arguments = self.runs.iter().map(|run| &run.argument[..]);
        arguments.chain(self.reads_at_once().then_some(&[][..]))
    }

    /// The same, which then leave the call.
    pub fn take_arguments(&mut self) -> impl Iterator<Item = Vec<u8>> {
        let at_once = self.reads_at_once().then(Vec::new);
        self.runs.iter_mut().map(|run| std::mem::take(&mut run.argument)).chain(at_once)
    }

    /// Whether one more argument says that all counters may be read by one command. A lone one is
    /// read no faster so.
    fn reads_at_once(&self) -> bool {
        self.plain && self.runs.len() > 1
    }

    /// Every step's item, in the order of the answers.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.runs.iter().flat_map(|run| run.steps.iter().map(|(item, _)| item))
    }

    /// The same, for good.
    pub fn into_items(self) -> impl Iterator<Item = T> {
        self.runs.into_iter().flat_map(|run| run.steps).map(|(item, _)| item)
    }

    /// Deals the script's answer out.
    pub fn deal(self, answer: &[u8], mut to: impl FnMut(T, StepReply<'_>)) {
        let mut rest = Some(answer);
        for run in self.runs {
            if let Some((&REFUSED, after)) = rest.and_then(<[u8]>::split_first) {
                rest = Some(after);
                run.steps.into_iter().for_each(|(item, _)| to(item, StepReply::Refused));
                continue;
            }
            for (item, length) in run.steps {
                let split = rest.and_then(|rest| rest.split_at_checked(length));
                rest = split.map(|(_, after)| after);
                to(item, split.map_or(StepReply::Malformed, |(own, _)| StepReply::Outcome(own)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{EntriesTier, FixedWindowTier, Lease, LeaseId, Params, Step};
    use crate::time::Micros;

    fn count(tiers: usize, lease: bool) -> EncodedStep {
        let tier = FixedWindowTier { start: Micros(1), end: Micros(2), max: 3 };
        message(Params::FixedWindow((0..tiers).map(|_| tier).collect()), lease)
    }

    fn log() -> EncodedStep {
        let tier = EntriesTier { after: Micros(1), window: Micros(2), max: 3 };
        message(Params::Log([tier].into_iter().collect()), true)
    }

    fn message(params: Params, lease: bool) -> EncodedStep {
        let lease = lease.then_some(Lease::Close(LeaseId::from_bits(1)));
        EncodedStep::of(&Step { now: Micros(1), hits: 1, count_denied: false, lease, params })
    }

    /// The items of every run of every call, and those that must leave later.
    fn packed(
        max: usize,
        steps: &[(u16, &'static str, EncodedStep)],
    ) -> (Vec<Vec<Vec<usize>>>, usize) {
        let mut batch = Batch::new(max);
        let added = steps.iter().enumerate().position(|(item, (group, key, message))| {
            batch.add(*group, key, message, item).is_err()
        });
        let runs = |call: ScriptCall<&str, usize>| {
            let items = |run: Run<_, usize>| run.steps.into_iter().map(|(item, _)| item).collect();
            call.runs.into_iter().map(items).collect()
        };
        let calls = batch.into_calls().into_iter().map(runs).collect();
        (calls, steps.len() - added.unwrap_or(steps.len()))
    }

    #[test]
    fn steps_on_one_counter_stand_together_in_the_order_of_arrival() {
        let [one, two] = [count(1, false), count(2, false)];
        let (a, b) = (|message: &EncodedStep| (0, "a", message.clone()), (0, "b", one.clone()));
        /// The runs of each call, as numbers of steps.
        type Runs = Vec<Vec<Vec<usize>>>;
        let table: [(usize, Vec<_>, Runs, usize); 8] = [
            (9, vec![], vec![], 0),
            (9, vec![a(&one), b.clone(), a(&one)], vec![vec![vec![0, 2], vec![1]]], 0),
            // Another number of tiers, or a lease: a run of its own, in the same call.
            (9, vec![a(&one), a(&two), a(&two)], vec![vec![vec![0], vec![1, 2]]], 0),
            (
                9,
                vec![a(&one), a(&count(1, true)), a(&count(1, true)), a(&one)],
                vec![vec![vec![0], vec![1], vec![2], vec![3]]],
                0,
            ),
            // Leases on holds stand with the others.
            (9, vec![a(&log()), a(&log())], vec![vec![vec![0, 1]]], 0),
            // Another script waits for the counter's earlier steps, and so does all after it.
            (9, vec![a(&one), b.clone(), a(&log()), b.clone()], vec![vec![vec![0], vec![1]]], 2),
            // A full call: other counters begin another one, its own wait.
            (2, vec![a(&one), a(&one), b.clone()], vec![vec![vec![0, 1]], vec![vec![2]]], 0),
            (2, vec![a(&one), a(&one), a(&one), b.clone()], vec![vec![vec![0, 1]]], 2),
        ];
        for (max, steps, calls, later) in table {
            let shown = format!("{max} {steps:?}");
            assert_eq!(packed(max, &steps), (calls, later), "{shown}");
        }
    }

    #[test]
    fn counters_of_different_groups_or_scripts_travel_in_different_calls() {
        let steps = [
            (1, "a", count(1, false)),
            (2, "b", count(1, false)),
            (1, "c", count(1, false)),
            (1, "d", log()),
        ];
        let calls = vec![vec![vec![0], vec![2]], vec![vec![1]], vec![vec![3]]];
        assert_eq!(packed(9, &steps), (calls, 0));
    }

    #[test]
    fn an_answer_is_dealt_out_by_length_and_what_is_missing_is_malformed() {
        let call = || {
            let mut batch = Batch::new(9);
            for (item, key) in ["a", "b", "a", "c"].into_iter().enumerate() {
                batch.add(0, &key, &count(1, false), item).expect("there is room");
            }
            batch.into_calls().remove(0)
        };
        assert_eq!((call().steps(), call().shared()), (4, 2));
        let dealt = |answer: &[u8]| {
            let mut told = Vec::new();
            call().deal(answer, |item, what| {
                told.push((
                    item,
                    match what {
                        StepReply::Outcome(bytes) => usize::from(bytes[14]),
                        StepReply::Refused => 100,
                        StepReply::Malformed => 200,
                    },
                ));
            });
            told
        };
        let one = |mark: u8| [&[1][..], &[0; 13], &[mark]].concat();
        let all = [one(1), one(2), one(3), one(4)].concat();
        assert_eq!(dealt(&all), [(0, 1), (2, 2), (1, 3), (3, 4)]);
        let refused = [&[REFUSED][..], &one(3), &[REFUSED]].concat();
        assert_eq!(dealt(&refused), [(0, 100), (2, 100), (1, 3), (3, 100)]);
        assert_eq!(dealt(&all[..50]), [(0, 1), (2, 2), (1, 3), (3, 200)]);
        assert_eq!(dealt(&[]), [(0, 200), (2, 200), (1, 200), (3, 200)]);
    }

    #[test]
    fn counters_are_read_at_once_only_if_each_is_named_once_and_none_can_be_large() {
        let [one, two, lease] = [count(1, false), count(2, false), count(1, true)];
        let look = EncodedStep { plain: false, ..count(1, false) };
        let table: [(&[(&str, &EncodedStep)], bool); 7] = [
            (&[("a", &one)], false),
            (&[("a", &one), ("a", &one)], false),
            (&[("a", &one), ("b", &two), ("a", &one)], true),
            (&[("a", &one), ("b", &one), ("a", &two)], false),
            (&[("a", &one), ("b", &lease)], false),
            (&[("a", &one), ("b", &one), ("b", &look)], false),
            (&[("a", &log()), ("b", &log())], false),
        ];
        for (steps, at_once) in table {
            let mut batch = Batch::new(9);
            for (key, message) in steps {
                batch.add(0, key, message, ()).expect("there is room");
            }
            let mut call = batch.into_calls().remove(0);
            let arguments: Vec<Vec<u8>> = call.arguments().map(<[u8]>::to_vec).collect();
            assert_eq!(arguments.len(), call.keys().count() + usize::from(at_once), "{steps:?}");
            assert_eq!(call.take_arguments().collect::<Vec<_>>(), arguments);
        }
    }
}
