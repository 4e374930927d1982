//! Mutations of valid input.

use super::rng::Rng;

/// Maximum length of an input, so that a run tries many small inputs instead of a few large ones.
const LONGEST: usize = 4096;

/// The parts of an input, for mutations that keep the syntax.
pub(crate) struct Language {
    /// Generates a valid input.
    pub(crate) good: fn(&mut Rng) -> Vec<u8>,
    /// More valid inputs, for features that `good` does not generate.
    pub(crate) corpus: Vec<Vec<u8>>,
    /// Fragments with a meaning in the language.
    pub(crate) words: Vec<Vec<u8>>,
}

impl Language {
    /// A valid input with up to four mutations, or rarely random bytes.
    pub(crate) fn input(&self, rng: &mut Rng) -> Vec<u8> {
        if rng.one_in(32) {
            let length = rng.below(64);
            return (0..length).map(|_| rng.next() as u8).collect();
        }
        let mut input = self.good(rng);
        for _ in 0..rng.below(5) {
            self.mutate(rng, &mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn good(&self, rng: &mut Rng) -> Vec<u8> {
        match rng.below(8) {
            0 if !self.corpus.is_empty() => rng.pick(&self.corpus).clone(),
            _ => (self.good)(rng),
        }
    }

    fn mutate(&self, rng: &mut Rng, input: &mut Vec<u8>) {
        let at = rng.below(input.len() + 1);
        let end = at + rng.below((input.len() - at).min(64) + 1);
        match rng.below(9) {
            0 if at < input.len() => input[at] ^= 1 << rng.below(8),
            1 if at < input.len() => input[at] = rng.next() as u8,
            2 => input.insert(at, rng.next() as u8),
            3 => drop(input.drain(at..end)),
            4 => input.truncate(at),
            5 => {
                let copy = input[at..end].to_vec();
                let to = rng.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            6 => {
                // The rest of another valid input.
                let other = self.good(rng);
                let from = rng.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let word = rng.pick(&self.words);
                let times = if rng.one_in(8) { 1 + rng.below(64) } else { 1 };
                let many = word.repeat(times);
                let replaced = if rng.one_in(2) { at..end } else { at..at };
                input.splice(replaced, many);
            }
        }
    }
}
