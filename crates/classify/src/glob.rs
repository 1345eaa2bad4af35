//! Glob patterns over paths: `*` within a segment, `**` across segments.
//!
//! The part before the first star is compared as it is. The rest runs as a set of states, one bit per pattern
//! position, all advanced together on each byte of the path: the time is proportional to the path whatever the
//! pattern, so a client cannot write a path that makes matching slow (backtracking matchers take the square of the
//! length or worse).

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The most characters a pattern may have from its first star on.
pub(super) const LONGEST_TAIL: usize = 127;

#[derive(Clone, Debug)]
pub(super) struct Glob {
    literal: Box<[u8]>,
    tail: Option<Box<Tail>>,
}

/// The states: bit i is set when the pattern's first i tokens can have matched what was read so far.
#[derive(Clone, Debug)]
struct Tail {
    /// Per byte: the positions whose token is that byte.
    bytes: [u128; 256],
    /// Positions of `*` and `**`: they may match nothing.
    stars: u128,
    /// Positions of `**`.
    double: u128,
    /// The state that means "the whole pattern matched".
    accept: u128,
}

impl Glob {
    /// `None` when the part from the first star on is too long.
    pub(super) fn new(pattern: &str) -> Option<Glob> {
        let bytes = pattern.as_bytes();
        let first_star = bytes.iter().position(|&b| b == b'*').unwrap_or(bytes.len());
        let (literal, rest) = bytes.split_at(first_star);
        let tail = if rest.is_empty() { None } else { Some(Box::new(Tail::new(rest)?)) };
        Some(Glob { literal: literal.into(), tail })
    }

    /// What every matching path begins with.
    pub(super) fn literal(&self) -> &[u8] {
        &self.literal
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let Some(rest) = path.strip_prefix(&*self.literal) else { return false };
        match &self.tail {
            Some(tail) => tail.matches(rest),
            None => rest.is_empty(),
        }
    }
}

impl Tail {
    fn new(pattern: &[u8]) -> Option<Tail> {
        let tokens = tokens(pattern);
        if tokens.len() > LONGEST_TAIL {
            return None;
        }
        let mut tail = Tail { bytes: [0; 256], stars: 0, double: 0, accept: 1 << tokens.len() };
        for (position, token) in tokens.into_iter().enumerate() {
            match token {
                Token::Byte(byte) => tail.bytes[usize::from(byte)] |= 1 << position,
                Token::Star => tail.stars |= 1 << position,
                Token::DoubleStar => {
                    tail.stars |= 1 << position;
                    tail.double |= 1 << position;
                }
            }
        }
        Some(tail)
    }

    fn matches(&self, path: &[u8]) -> bool {
        let mut states = self.skip_stars(1);
        for &byte in path {
            let stay = if byte == b'/' { self.double } else { self.stars };
            let stepped = (states & self.bytes[usize::from(byte)]) << 1;
            states = self.skip_stars(stepped | states & stay);
            if states == 0 {
                return false;
            }
        }
        states & self.accept != 0
    }

    /// Stars are never neighbours (see [`tokens`]), so one step reaches everything.
    fn skip_stars(&self, states: u128) -> u128 {
        states | (states & self.stars) << 1
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Token {
    Byte(u8),
    Star,
    DoubleStar,
}

/// Reads a pattern; a run of two or more stars is one `**`.
fn tokens(pattern: &[u8]) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for &byte in pattern {
        match (byte, tokens.last_mut()) {
            (b'*', Some(last @ (Token::Star | Token::DoubleStar))) => *last = Token::DoubleStar,
            (b'*', _) => tokens.push(Token::Star),
            (other, _) => tokens.push(Token::Byte(other)),
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn matches(pattern: &str, path: &str) -> bool {
        Glob::new(pattern).expect("short enough").matches(path.as_bytes())
    }

    #[test]
    fn one_star_stays_in_its_segment_and_two_do_not() {
        assert!(matches("/img/*.png", "/img/a.png"));
        assert!(!matches("/img/*.png", "/img/a/b.png"));
        assert!(matches("/img/**.png", "/img/a/b.png"));
        assert!(matches("/users/*/orders", "/users/7/orders"));
        assert!(!matches("/users/*/orders", "/users/7/8/orders"));
        assert!(matches("/**/orders", "/a/b/c/orders"));
        assert!(matches("/static/**", "/static/"));
        assert!(!matches("/static/**", "/static"));
        assert!(matches("/a*", "/a"));
        assert!(matches("/a", "/a") && !matches("/a", "/ab"));
        assert!(matches("**", "/anything/at/all"));
        assert!(!matches("/*", "/a/"));
    }

    #[test]
    fn hostile_paths_take_linear_time() {
        // A backtracking matcher needs a number of steps with twenty digits here.
        let path = format!("/{}", "a".repeat(16_000));
        assert!(!matches("/**a*a**a*a**a*a**b", &path));
        assert!(matches("/**a*a**a*a**a*a", &path));
    }

    #[test]
    fn patterns_have_a_longest_length() {
        assert!(Glob::new(&format!("/{}*", "a".repeat(500))).is_some());
        assert!(Glob::new(&format!("*{}", "a".repeat(126))).is_some());
        assert!(Glob::new(&format!("*{}", "a".repeat(127))).is_none());
    }
}
