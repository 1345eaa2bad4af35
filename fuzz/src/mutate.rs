//! Mutants: inputs of a corpus, cut, joined, repeated and changed, with words of a target's language put in.
//!
//! Blind, without an eye on what the target did: that takes a compiler that instruments (cargo-fuzz). It finds less for
//! each execution, but runs anywhere, and its mutants follow from a seed and a number, so that each can be made again.

use tidegate_engine::Rng;

/// Makes mutants. Equal corpora, seeds and numbers give equal mutants.
#[derive(Debug)]
pub struct Mutator {
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    longest: usize,
}

impl Mutator {
    /// Of a corpus that is not empty; mutants are cut off at `longest` bytes.
    pub fn new(corpus: Vec<Vec<u8>>, words: Vec<Vec<u8>>, longest: usize) -> Self {
        assert!(!corpus.is_empty(), "mutants of nothing");
        Self { corpus, words, longest }
    }

    /// The mutant of this number.
    pub fn mutant(&self, seed: u64, number: u64) -> Vec<u8> {
        // Neighbours must not have similar generators; Rng::new mixes.
        let mut rng = Rng::new(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut bytes = self.origin(&mut rng);
        // Few changes, mostly: what is changed much is refused by the first reader.
        let most = if rng.below(8) == 0 { 16 } else { 4 };
        let changes = rng.below(most);
        for _ in 0..changes {
            self.change(&mut bytes, &mut rng);
        }
        bytes.truncate(self.longest);
        bytes
    }

    /// What is changed: inputs of the corpus, one behind the other, or a text of words.
    fn origin(&self, rng: &mut Rng) -> Vec<u8> {
        let (from, most) = match self.words.as_slice() {
            words if !words.is_empty() && rng.below(4) == 0 => (words, 12),
            _ => (self.corpus.as_slice(), 3),
        };
        let count = 1 + rng.below(most);
        (0..count).flat_map(|_| pick(from, rng).iter().copied()).collect()
    }

    fn change(&self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        let from = rng.below(bytes.len() + 1);
        let most = 1 << rng.below(8);
        let length = 1 + rng.below(most);
        let to = (from + length).min(bytes.len());
        match rng.below(10) {
            // One bit, one byte, one of the bytes that end things.
            0 if from < to => bytes[from] ^= 1 << rng.below(8),
            1 if from < to => bytes[from] = rng.next_u64() as u8,
            2 if from < to => bytes[from] = *pick(EDGES, rng),
            3 => bytes.insert(from, *pick(EDGES, rng)),
            4 => drop(bytes.drain(from..to)),
            5 => {
                let again = bytes[from..to].to_vec();
                self.put(bytes, from, &again);
            }
            // The beginning of one, and the end of another.
            6 => {
                let other = pick(&self.corpus, rng);
                let at = rng.below(other.len() + 1);
                bytes.truncate(from);
                bytes.extend_from_slice(&other[at..]);
            }
            7 => number(bytes, from, rng),
            _ if self.words.is_empty() => {
                let random: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
                self.put(bytes, from, &random);
            }
            8 => {
                let word = pick(&self.words, rng);
                let to = (from + word.len()).min(bytes.len());
                bytes.splice(from..to, word.iter().copied());
            }
            _ => self.put(bytes, from, pick::<Vec<u8>>(&self.words, rng)),
        }
    }

    fn put(&self, bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
        if bytes.len() < self.longest {
            bytes.splice(at..at, what.iter().copied());
        }
    }
}

/// Bytes with a meaning in some language here, and the ends of their range.
const EDGES: &[u8] = b"\r\n \t:;,=\"'/\\%.#?&[]{}0_-+aA\x00\x7f\x80\xff";

/// Numbers at which something changes.
const NUMBERS: &[&str] = &["0", "1", "9", "10", "255", "256", "65535", "65536", "4294967296", "18446744073709551616"];

/// Replaces the digits around a place by another number.
fn number(bytes: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset) else { return };
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    bytes.splice(start..start + length, pick(NUMBERS, rng).bytes());
}

fn pick<'a, T>(from: &'a [T], rng: &mut Rng) -> &'a T {
    &from[rng.below(from.len())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn mutator(words: &[&str]) -> Mutator {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Mutator::new(vec![b"abcdefgh12".to_vec(), Vec::new()], words, 64)
    }

    #[test]
    fn a_seed_and_a_number_make_a_mutant_again() {
        let mutator = mutator(&["word"]);
        let all: BTreeSet<Vec<u8>> = (0..1000).map(|number| mutator.mutant(7, number)).collect();
        assert!(all.len() > 500, "only {} of 1,000 differ", all.len());
        for number in 0..1000 {
            assert_eq!(mutator.mutant(7, number), mutator.mutant(7, number));
        }
        let same = (0..1000).filter(|&number| mutator.mutant(7, number) == mutator.mutant(8, number)).count();
        assert!(same < 100, "{same} of 1,000 are the same with another seed");
    }

    #[test]
    fn mutants_are_bounded_and_have_the_words() {
        let mutator = mutator(&["zwordz"]);
        let all: Vec<Vec<u8>> = (0..1000).map(|number| mutator.mutant(1, number)).collect();
        assert!(all.iter().all(|one| one.len() <= 64));
        let with = all.iter().filter(|one| one.windows(6).any(|window| window == b"zwordz")).count();
        assert!((200..1000).contains(&with), "{with} of 1,000 have the word");
        assert!(all.iter().any(|one| one.windows(5).any(|window| window == b"65536")), "no number was replaced");
    }

    #[test]
    fn without_words_random_bytes_are_put_in() {
        let mutator = mutator(&[]);
        let seen: BTreeSet<u8> = (0..5000).flat_map(|number| mutator.mutant(1, number)).collect();
        assert_eq!(seen.len(), 256, "a byte never comes");
    }
}
