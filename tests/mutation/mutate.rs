//! Mutations: from good input to input that is nearly good, and from there to anything.

use super::dice::Dice;

/// Inputs stay below this, so that a run measures many small inputs and not a few large ones.
const LONGEST: usize = 4096;

/// What an input is made of, for mutations that know its language.
pub(crate) struct Language {
    /// Makes a good input.
    pub(crate) good: fn(&mut Dice) -> Vec<u8>,
    /// More good inputs, for what is not made at random.
    pub(crate) corpus: Vec<Vec<u8>>,
    /// Fragments that mean something.
    pub(crate) words: Vec<Vec<u8>>,
}

impl Language {
    /// An input: a good one with up to four mutations, rarely noise.
    pub(crate) fn input(&self, dice: &mut Dice) -> Vec<u8> {
        if dice.one_in(32) {
            let length = dice.below(64);
            return (0..length).map(|_| dice.next() as u8).collect();
        }
        let mut input = self.good(dice);
        for _ in 0..dice.below(5) {
            self.mutate(dice, &mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn good(&self, dice: &mut Dice) -> Vec<u8> {
        match dice.below(8) {
            0 if !self.corpus.is_empty() => dice.pick(&self.corpus).clone(),
            _ => (self.good)(dice),
        }
    }

    fn mutate(&self, dice: &mut Dice, input: &mut Vec<u8>) {
        let at = dice.below(input.len() + 1);
        let end = at + dice.below((input.len() - at).min(64) + 1);
        match dice.below(9) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = dice.next() as u8,
            2 => input.insert(at, dice.next() as u8),
            3 => drop(input.drain(at..end)),
            4 => input.truncate(at),
            5 => {
                let copy = input[at..end].to_vec();
                let to = dice.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            6 => {
                // The rest of another good input.
                let other = self.good(dice);
                let from = dice.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let word = dice.pick(&self.words);
                let times = if dice.one_in(8) { 1 + dice.below(64) } else { 1 };
                let many = word.repeat(times);
                let replaced = if dice.one_in(2) { at..end } else { at..at };
                input.splice(replaced, many);
            }
        }
    }
}
