//! Senders, subjects and texts out of a vocabulary.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

/// Writes mail.
#[derive(Debug)]
pub(super) struct Writer {
    words: Vec<&'static str>,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { words: WORDS.lines().collect() }
    }

    pub(super) fn sender(&self, rng: &mut Xoshiro256PlusPlus) -> String {
        let (first, last) = (pick(rng, FIRST), pick(rng, LAST));
        format!("{first} {last} <{}.{}@example.org>", first.to_lowercase(), last.to_lowercase())
    }

    pub(super) fn subject(&self, rng: &mut Xoshiro256PlusPlus) -> String {
        let prefix = pick(rng, &["", "", "", "Re: ", "Re: ", "Fwd: "]);
        let words: Vec<&str> = (0..rng.random_range(2..7)).map(|_| self.word(rng)).collect();
        format!("{prefix}{}", sentence_case(&words.join(" ")))
    }

    /// About `mean` bytes on average, from a quarter of it to well above.
    pub(super) fn text(&self, rng: &mut Xoshiro256PlusPlus, mean: u32) -> String {
        let mean = f64::from(mean);
        let tail = -rng.random::<f64>().max(1e-4).ln();
        let length = (mean * (0.25 + 0.75 * tail)) as usize;
        let mut text = String::with_capacity(length + 100);
        while text.len() < length {
            self.paragraph(rng, &mut text, length);
        }
        text
    }

    fn paragraph(&self, rng: &mut Xoshiro256PlusPlus, text: &mut String, length: usize) {
        for _ in 0..rng.random_range(2..7) {
            let from = text.len();
            for at in 0..rng.random_range(4..16) {
                text.push_str(if at == 0 { "" } else { " " });
                text.push_str(self.word(rng));
            }
            text[from..=from].make_ascii_uppercase();
            text.push_str(". ");
            if text.len() >= length {
                break;
            }
        }
        text.truncate(text.trim_end().len());
        text.push_str("\n\n");
    }

    /// Zipf's law: the rank of a word is as if drawn evenly on a logarithmic scale.
    fn word(&self, rng: &mut Xoshiro256PlusPlus) -> &'static str {
        let rank = (self.words.len() as f64).powf(rng.random::<f64>()) as usize;
        // The alphabet is not the order of use: ranks are spread over it by a step that meets every word.
        self.words[(rank - 1) * STEP % self.words.len()]
    }
}

fn pick<'a>(rng: &mut Xoshiro256PlusPlus, among: &[&'a str]) -> &'a str {
    among[rng.random_range(0..among.len())]
}

fn sentence_case(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

const WORDS: &str = include_str!("../../assets/words.txt");

/// A prime that does not divide the number of words.
const STEP: usize = 313;

const FIRST: &[&str] = &[
    "Ada",
    "Alan",
    "Barbara",
    "Carlos",
    "Chen",
    "Dorothy",
    "Edsger",
    "Emeka",
    "Fatima",
    "Grace",
    "Hiroshi",
    "Ines",
    "Jamal",
    "Katherine",
    "Leila",
    "Miguel",
    "Nadia",
    "Olga",
    "Priya",
    "Rosa",
    "Sven",
    "Tove",
    "Wei",
    "Yusuf",
];

const LAST: &[&str] = &[
    "Abebe", "Baker", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Haddad", "Ito", "Jansen", "Kovacs", "Lopez",
    "Mwangi", "Novak", "Okafor", "Patel", "Quinn", "Rossi", "Singh", "Tanaka", "Usman", "Virtanen", "Wang", "Zhou",
];

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_word_can_occur_and_some_are_common() {
        let writer = Writer::new();
        assert_ne!(writer.words.len() % STEP, 0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let first = writer.words[0];
        let common = (0..10_000).filter(|_| writer.word(&mut rng) == first).count();
        assert!((700..1400).contains(&common), "{common} in 10,000, where 1,074 are expected");
    }

    #[test]
    fn texts_have_their_mean_length() {
        let writer = Writer::new();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let total: usize = (0..2_000).map(|_| writer.text(&mut rng, 2_000).len()).sum();
        assert!((1_900..2_200).contains(&(total / 2_000)), "{}", total / 2_000);
    }
}
