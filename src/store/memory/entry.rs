//! Packs one counter into an entry of 48 bytes, with a state of up to three words.

use crate::key::CounterKey;
use crate::step::{FixedWindow, GcraTime, SlidingWindow, State, Step, TierStates};
use crate::time::Micros;

const _: () =
    assert!(size_of::<CounterEntry>() == 48, "the memory bound is counted from this size");

/// Fullness of a counter at its limit, which is never evicted.
const LIMITED: u16 = u16::MAX;

/// How long a counter is kept after its expiry, in seconds. Threads read the clock before they lock
/// a shard, so a step may have an earlier instant than the step before it.
const GRACE_SECS: u32 = 1;

/// A counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterEntry {
    pub(super) key: CounterKey,
    /// The packed state. For a large one, `words[0]` is its index in the shard's list.
    pub(super) words: [u64; 3],
    // The fields of EntryMeta, inlined so that the kind fits into the same word.
    expires_secs: u32,
    fullness: u16,
    pub(super) kind: StateKind,
}

/// The meaning of `words`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    FixedWindow,
    SlidingWindow,
    Gcra,
    Large,
}

/// The data of a counter that expiry and eviction use. They have no step to compute it from.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryMeta {
    /// When the state no longer affects a decision, in seconds since the epoch, rounded up.
    expires_secs: u32,
    /// Used share of the limit: 0 empty, 65535 at the limit.
    fullness: u16,
}

impl EntryMeta {
    /// The metadata of `state` after `step`.
    pub(super) fn of(step: &Step, state: &State) -> EntryMeta {
        let expires = step.expires_at(state).ceil_secs();
        // Instants after 2106 do not fit. Such a counter never expires, which only costs memory.
        let expires_secs = u32::try_from(expires).unwrap_or(u32::MAX);
        EntryMeta { expires_secs, fullness: step.fullness(state) }
    }

    /// Whether removing the counter changes no decision, even if the next step is slightly older
    /// than `now`.
    pub(super) fn is_expired(self, now: Micros) -> bool {
        u64::from(self.expires_secs) + u64::from(GRACE_SECS) <= now.0 / Micros::SECOND.0
    }

    /// The amount of state that an eviction would lose; less state compares as smaller. `None` if
    /// the counter must not be evicted.
    pub(super) fn loss(self, now: Micros) -> Option<(bool, u16, u32)> {
        let live = u64::from(self.expires_secs) > now.0 / Micros::SECOND.0;
        if live && self.fullness == LIMITED {
            return None;
        }
        Some((live, self.fullness, self.expires_secs))
    }
}

/// The words of a state; `None` for several tiers, or a list.
fn packed(state: &State) -> Option<(StateKind, [u64; 3])> {
    match state {
        State::FixedWindow(TierStates::One(FixedWindow { start, count })) => {
            Some((StateKind::FixedWindow, [start.0, *count, 0]))
        }
        State::SlidingWindow(TierStates::One(SlidingWindow { start, current, previous })) => {
            Some((StateKind::SlidingWindow, [start.0, *current, *previous]))
        }
        State::Gcra(TierStates::One(GcraTime { micros, part })) => {
            Some((StateKind::Gcra, [*micros, *part, 0]))
        }
        _ => None,
    }
}

impl CounterEntry {
    /// A counter without a state yet.
    pub(super) const fn new(key: CounterKey) -> CounterEntry {
        CounterEntry {
            key,
            words: [0; 3],
            expires_secs: 0,
            fullness: 0,
            kind: StateKind::FixedWindow,
        }
    }

    /// The metadata for expiry and eviction.
    pub(super) fn meta(&self) -> EntryMeta {
        EntryMeta { expires_secs: self.expires_secs, fullness: self.fullness }
    }

    /// Sets the metadata for expiry and eviction.
    pub(super) fn set_meta(&mut self, meta: EntryMeta) {
        self.expires_secs = meta.expires_secs;
        self.fullness = meta.fullness;
    }

    /// A number of both ends of the entry, which may be on two cache lines. It has no meaning.
    pub(super) fn ends(&self) -> u64 {
        self.key.0[0] ^ u64::from(self.expires_secs)
    }

    /// Whether `state` fits into an entry.
    pub(super) fn fits(state: &State) -> bool {
        packed(state).is_some()
    }

    /// Packs `state`, which `step` left, into the entry, or returns `false` if it does not fit. The
    /// entry must not hold a large state.
    pub(super) fn pack(&mut self, step: &Step, state: &State) -> bool {
        let Some((kind, words)) = packed(state) else { return false };
        self.kind = kind;
        self.words = words;
        self.set_meta(EntryMeta::of(step, state));
        true
    }

    /// The packed state; `None` for a large one.
    pub(super) fn state(&self) -> Option<State> {
        let [a, b, c] = self.words;
        match self.kind {
            StateKind::FixedWindow => Some(State::FixedWindow(TierStates::One(FixedWindow {
                start: Micros(a),
                count: b,
            }))),
            StateKind::SlidingWindow => {
                let windows = SlidingWindow { start: Micros(a), current: b, previous: c };
                Some(State::SlidingWindow(TierStates::One(windows)))
            }
            StateKind::Gcra => Some(State::Gcra(TierStates::One(GcraTime { micros: a, part: b }))),
            StateKind::Large => None,
        }
    }
}
