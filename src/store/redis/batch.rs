//! Packs steps into as few script calls as possible.
//!
//! A run is the steps on one counter in their order of arrival. A script reads and writes the
//! counter once per run. Equal steps on a fixed window are sent as one step and a number, and counters with
//! equal runs share one argument.
//!
//! **Invariant:** all steps of a batch on one counter are in one call, so they cannot overtake each
//! other.

use std::hash::Hash;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::script::{EncodedStep, Script};

mod groups;
mod repeated;

pub use repeated::REPEATED_WITHIN;

/// Reply for a run whose counter could not be read. None of its steps ran.
const UNREADABLE: u8 = 2;

/// The most steps on entry lists in one call. Such a step may take hundreds of microseconds, and a
/// script blocks the whole node.
pub(crate) const ENTRY_STEPS_MAX: usize = 16;

/// Steps on counters named by `K`, each with an item `T` that is returned with its reply.
#[derive(Debug)]
pub struct StepBatch<K, T> {
    calls: Vec<ScriptCall<K, T>>,
    /// The last run of each counter: index of the call, index of the run in it.
    places: HashMap<K, (usize, usize)>,
    max: usize,
}

/// One call of one script, with one run per counter.
#[derive(Debug)]
pub struct ScriptCall<K, T> {
    script: Script,
    slot_group: u16,
    runs: Vec<Run<K, T>>,
    steps: usize,
    /// Number of steps in runs of several steps.
    combined: usize,
    /// All steps are plain, and no counter has two runs, so one `MGET` may read all counters.
    plain: bool,
    /// The number of counters in each group of equal runs, in two bytes; empty without groups. See [`groups`].
    group_sizes: Vec<u8>,
}

/// Steps on one counter.
#[derive(Debug)]
struct Run<K, T> {
    key: K,
    head: [u8; 2],
    combinable: bool,
    /// The only step may be sent several times at once.
    repeatable: bool,
    /// The argument stands for all steps by one step and their number.
    is_repeated: bool,
    /// An equal run is sent in its place: the first one of its group.
    follows: bool,
    argument: Vec<u8>,
    /// Each step's item, and the length of its reply in bytes.
    steps: SmallVec<[(T, usize); 1]>,
}

/// The part of a call's reply that belongs to one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepReply<'a> {
    /// The outcome, for [`decode`](super::script::decode).
    Outcome(&'a [u8]),
    /// The step did not run, because the counter cannot be read. If it is sent alone, Redis returns
    /// the error.
    Unreadable,
    /// Missing or malformed. The step may have run.
    Malformed,
}

impl<K: Clone + Eq + Hash + AsRef<[u8]>, T> StepBatch<K, T> {
    /// An empty batch of calls with at most `max` steps, at least one.
    pub fn new(max: usize) -> StepBatch<K, T> {
        StepBatch { calls: Vec::new(), places: HashMap::new(), max: max.max(1) }
    }

    /// Adds a step on the counter `key`. A call carries counters of one `slot_group` only.
    ///
    /// # Errors
    /// Returns `item` if the step must wait for a later batch: the counter's call is full, or the
    /// counter's earlier steps need another script.
    pub fn add(
        &mut self,
        slot_group: u16,
        key: &K,
        encoded: &EncodedStep,
        item: T,
    ) -> Result<(), T> {
        let known = self.places.get(key).copied();
        let index = match known {
            Some((index, _)) if self.calls[index].script != encoded.script => return Err(item),
            Some((index, _)) => index,
            None => self.call(encoded.script, slot_group),
        };
        let call = &mut self.calls[index];
        if call.steps >= call.room(self.max) {
            return Err(item);
        }
        call.steps += 1;
        call.plain &= encoded.plain;
        if let Some((_, run)) = known
            && let run = &mut call.runs[run]
            && run.accepts(encoded)
        {
            call.combined += if run.steps.len() == 1 { 2 } else { 1 };
            run.push(encoded, item);
            return Ok(());
        }
        // A second run must read what the first one wrote.
        call.plain &= known.is_none();
        self.places.insert(key.clone(), (index, call.runs.len()));
        call.runs.push(Run::new(key.clone(), encoded, item));
        Ok(())
    }

    fn call(&mut self, script: Script, slot_group: u16) -> usize {
        // Only the newest call of a script and slot group can have room.
        let same = |call: &ScriptCall<K, T>| call.script == script && call.slot_group == slot_group;
        let found = self.calls.iter().rposition(same);
        let full = |index: &usize| {
            let call: &ScriptCall<K, T> = &self.calls[*index];
            call.steps >= call.room(self.max)
        };
        found.filter(|index| !full(index)).unwrap_or_else(|| {
            let (runs, steps, combined, plain) = (Vec::new(), 0, 0, true);
            let group_sizes = Vec::new();
            self.calls.push(ScriptCall {
                script,
                slot_group,
                runs,
                steps,
                combined,
                plain,
                group_sizes,
            });
            self.calls.len() - 1
        })
    }

    /// The calls, in sending order.
    pub fn into_calls(mut self) -> Vec<ScriptCall<K, T>> {
        for call in &mut self.calls {
            if call.allows_mget() && call.script == Script::FixedWindow {
                call.group_sizes = groups::group(&mut call.runs);
            }
        }
        self.calls
    }
}

impl<K, T> Run<K, T> {
    fn new(key: K, encoded: &EncodedStep, item: T) -> Run<K, T> {
        let mut argument = Vec::with_capacity(2 + encoded.body.len() + repeated::NUMBER_SIZE);
        argument.extend(encoded.head);
        argument.extend_from_slice(&encoded.body);
        let steps = [(item, encoded.reply_len)].into_iter().collect();
        let (head, combinable) = (encoded.head, encoded.combinable);
        let repeatable = repeated::is_repeatable(encoded);
        let (is_repeated, follows) = (false, false);
        Run { key, head, combinable, repeatable, is_repeated, follows, argument, steps }
    }

    /// Whether the argument stands for all steps by one step and their number, or could.
    fn is_repeatable(&self) -> bool {
        self.is_repeated || (self.repeatable && self.steps.len() == 1)
    }

    /// Makes the argument stand for all steps by one step and their number, if it can. The argument of a run that
    /// is not sent stays as it is.
    fn repeat(&mut self) {
        self.is_repeated = self.is_repeatable();
        if self.is_repeated && !self.follows {
            repeated::repeat(&mut self.argument, self.steps.len());
        }
    }

    fn accepts(&self, encoded: &EncodedStep) -> bool {
        let is_combinable = self.combinable && encoded.combinable && self.head == encoded.head;
        is_combinable && (!self.is_repeated || repeated::is_equal(&self.argument, encoded))
    }

    fn push(&mut self, encoded: &EncodedStep, item: T) {
        self.steps.push((item, encoded.reply_len));
        let is_second = self.steps.len() == 2;
        self.is_repeated |= is_second && repeated::is_equal(&self.argument, encoded);
        if self.is_repeated {
            repeated::repeat(&mut self.argument, self.steps.len());
        } else {
            self.argument.extend_from_slice(&encoded.body);
        }
    }
}

impl<K: AsRef<[u8]>, T> ScriptCall<K, T> {
    /// A call of one step.
    pub fn single(key: K, encoded: &EncodedStep, item: T) -> ScriptCall<K, T> {
        let runs = vec![Run::new(key, encoded, item)];
        let plain = encoded.plain;
        let (script, group_sizes) = (encoded.script, Vec::new());
        ScriptCall { script, slot_group: 0, runs, steps: 1, combined: 0, plain, group_sizes }
    }

    fn room(&self, max: usize) -> usize {
        if self.script == Script::Entries { max.min(ENTRY_STEPS_MAX) } else { max }
    }

    /// The script to call.
    pub fn script(&self) -> Script {
        self.script
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Number of steps in runs of several steps.
    pub fn combined(&self) -> usize {
        self.combined
    }

    /// The script's `KEYS`.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.runs.iter().map(|run| &run.key)
    }

    /// The script's `ARGV`: one argument per group of equal runs and the sizes of the groups, or one per run and
    /// an empty one that allows a single `MGET`.
    pub fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let sent = self.runs.iter().filter(|run| !run.follows);
        let last = self.allows_mget().then_some(&self.group_sizes[..]);
        sent.map(|run| &run.argument[..]).chain(last)
    }

    /// Whether one `MGET` may read all counters. It saves a command per counter, but nothing for a single one.
    fn allows_mget(&self) -> bool {
        self.plain && self.runs.len() > 1
    }

    /// Every step's item, in the order of the replies.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.runs.iter().flat_map(|run| run.steps.iter().map(|(item, _)| item))
    }

    /// Every step's item, in the order of the replies, moved out of the call.
    pub fn into_items(self) -> impl Iterator<Item = T> {
        self.runs.into_iter().flat_map(|run| run.steps).map(|(item, _)| item)
    }

    /// Splits the script's reply, and passes each step's item with its part to `to`.
    pub fn split_reply(self, reply: &[u8], mut to: impl FnMut(T, StepReply<'_>)) {
        let mut rest = Some(reply);
        for run in self.runs {
            if let Some((&UNREADABLE, after)) = rest.and_then(<[u8]>::split_first) {
                rest = Some(after);
                run.steps.into_iter().for_each(|(item, _)| to(item, StepReply::Unreadable));
                continue;
            }
            if run.is_repeated {
                let split = rest.and_then(|rest| rest.split_at_checked(repeated::REPLY_SIZE));
                rest = split.map(|(_, after)| after);
                let before = split.map(|(before, _)| before);
                let mut next = before.and_then(|before| repeated::replies(&run.argument, before));
                for (item, _) in run.steps {
                    let reply = next.as_mut().map(|next| next());
                    let reply = reply.as_deref();
                    to(item, reply.map_or(StepReply::Malformed, StepReply::Outcome));
                }
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
mod tests;
