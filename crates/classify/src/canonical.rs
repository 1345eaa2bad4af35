//! The canonical spelling of a target's path: what rules read and what the server gets, so that both read the same.
//!
//! *Intuition.* A path whose readers all agree is brought into one spelling: escapes of letters, digits and `-._~` are
//! decoded, all others have upper-case digits. A path whose readers may disagree is *ambiguous*: one with an empty
//! segment, with `.` or `..` (however written, and before a `;` too), with a backslash, an escaped slash or backslash,
//! an escaped control character, or a `%` without two digits. Servers resolve such paths or do not, before or after
//! they decode them, so whoever writes one can show the rules another resource than the server.
//!
//! *Source.* RFC 3986, 6.2.2; CVE-2021-29492 for what comes of reading them twice.

use alloc::string::String;
use alloc::vec::Vec;

use super::path::{LONGEST_ODD_PATH, is_plain, without_query};

/// What becomes of paths that can be read in two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    /// They are refused.
    #[default]
    Strict,
    /// They are resolved, and the server gets the result.
    Merge,
    /// The server gets what was written. Rules take the worse of two readings.
    AsIs,
}

impl Paths {
    /// Every way.
    pub const ALL: [Paths; 3] = [Paths::Strict, Paths::Merge, Paths::AsIs];

    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Paths::Strict => "strict",
            Paths::Merge => "merge",
            Paths::AsIs => "as-is",
        }
    }
}

/// How a path can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// In one way, and it is spelt canonically.
    Canonical,
    /// In one way; its canonical spelling is another.
    Other,
    /// In several ways.
    Ambiguous,
    /// It is odd and longer than rules read.
    TooLong,
}

/// How the path of a target in origin form can be read. Allocates nothing.
pub fn reading(target: &str) -> Reading {
    let path = without_query(target);
    if is_plain(path) || path.first() != Some(&b'/') {
        return Reading::Canonical;
    }
    if path.len() > LONGEST_ODD_PATH {
        return Reading::TooLong;
    }
    let mut segment = Segment::START;
    let (mut other, mut rest) = (false, &path[1..]);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'/' if segment == Segment::START || segment.is_dots() => return Reading::Ambiguous,
            b'/' => segment = Segment::START,
            b'\\' => return Reading::Ambiguous,
            b'%' => {
                let Some((value, after)) = escape(rest) else { return Reading::Ambiguous };
                if matches!(value, b'/' | b'\\') || value.is_ascii_control() {
                    return Reading::Ambiguous;
                }
                other |= is_unreserved(value) || rest[..2].iter().any(u8::is_ascii_lowercase);
                segment = segment.with(value);
                rest = after;
            }
            other => segment = segment.with(other),
        }
    }
    match (segment.is_dots(), other) {
        (true, _) => Reading::Ambiguous,
        (false, true) => Reading::Other,
        (false, false) => Reading::Canonical,
    }
}

/// The canonical spelling of a target in origin form, its query as it was. An ambiguous path is resolved as most
/// servers would: slashes and backslashes however written part segments, empty ones vanish, `.` and `..` go. `None`:
/// that cannot be done, as an escape is broken or stands for a control character, or the path is too long.
pub fn canonical(target: &str) -> Option<String> {
    let path = without_query(target);
    let read = reading(target);
    if read == Reading::Canonical {
        return Some(target.into());
    }
    if read == Reading::TooLong {
        return None;
    }
    let mut spelt = spell(path)?;
    if read == Reading::Ambiguous {
        spelt = resolve(&spelt);
    }
    spelt.extend_from_slice(&target.as_bytes()[path.len()..]);
    String::from_utf8(spelt).ok()
}

/// How far a segment is a name made of dots: before its first `;`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment {
    /// So many dots, and nothing else.
    Dots(u8),
    /// So many dots and then a `;`.
    DotsAndMore(u8),
    Name,
}

impl Segment {
    const START: Segment = Segment::Dots(0);

    fn with(self, byte: u8) -> Segment {
        match (self, byte) {
            (Segment::Dots(dots @ ..3), b'.') => Segment::Dots(dots + 1),
            (Segment::Dots(dots), b';') => Segment::DotsAndMore(dots),
            (Segment::DotsAndMore(dots), _) => Segment::DotsAndMore(dots),
            _ => Segment::Name,
        }
    }

    fn is_dots(self) -> bool {
        matches!(self, Segment::Dots(1 | 2) | Segment::DotsAndMore(1 | 2))
    }
}

/// Every escape as it should be written, every separator as a slash.
fn spell(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'\\' => out.push(b'/'),
            b'%' => {
                let (value, after) = escape(rest)?;
                match value {
                    b'/' | b'\\' => out.push(b'/'),
                    _ if value.is_ascii_control() => return None,
                    _ if is_unreserved(value) => out.push(value),
                    _ => out.extend([b'%', rest[0].to_ascii_uppercase(), rest[1].to_ascii_uppercase()]),
                }
                rest = after;
            }
            other => out.push(other),
        }
    }
    Some(out)
}

/// Without empty segments, `.` and `..`.
fn resolve(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut is_directory = true;
    for segment in path.split(|&byte| byte == b'/') {
        let (name, dots) = dots(segment);
        is_directory = segment.is_empty() || name;
        match dots {
            _ if segment.is_empty() => {}
            1 if name => {}
            2 if name => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    let mut out = Vec::with_capacity(path.len() + 1);
    for segment in &kept {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if is_directory {
        out.push(b'/');
    }
    out
}

/// Whether a segment, spelt canonically, is `.` or `..`, and how many dots it has then.
fn dots(segment: &[u8]) -> (bool, u8) {
    let mut read = Segment::START;
    let mut rest = segment;
    while let Some((&byte, after)) = rest.split_first() {
        let decoded = if byte == b'%' { escape(after) } else { None };
        let (value, after) = decoded.unwrap_or((byte, after));
        read = read.with(value);
        rest = after;
    }
    match read {
        Segment::Dots(dots) | Segment::DotsAndMore(dots) => (read.is_dots(), dots),
        Segment::Name => (false, 0),
    }
}

/// The byte that the two digits after a `%` stand for.
fn escape(digits: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, rest @ ..] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some(((digit(*high)? << 4 | digit(*low)?) as u8, rest))
}

/// RFC 3986, 2.3: escaping it changes nothing.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::normalise;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn what_all_read_alike_has_one_spelling() {
        for same in
            ["/", "*", "/a/b/", "/.well-known/x", "/a..b/...", "/%20%C3%A9", "/a;v=1/b", "/a?x=//../%zz", "/%252E"]
        {
            assert_eq!(reading(same), Reading::Canonical, "{same}");
            assert_eq!(canonical(same).as_deref(), Some(same));
        }
        for (odd, one) in [("/%63heckout?a", "/checkout?a"), ("/caf%c3%a9", "/caf%C3%A9"), ("/a%2Db%3b", "/a-b%3B")] {
            assert_eq!(reading(odd), Reading::Other, "{odd}");
            assert_eq!(canonical(odd).as_deref(), Some(one));
        }
    }

    #[test]
    fn what_can_be_read_twice_is_ambiguous() {
        for (odd, resolved) in [
            ("/search/..%2fhealthz", Some("/healthz")),
            ("/search/..%2f..%2fhealthz?q=1", Some("/healthz?q=1")),
            ("/search/%2e%2e%5chealthz", Some("/healthz")),
            ("/search/..;/healthz", Some("/healthz")),
            ("/search/..%3bx/healthz", Some("/healthz")),
            ("/search/..%2fgold", Some("/gold")),
            ("/search/a%2f..%2f..%2fgold/x", Some("/gold/x")),
            ("//checkout", Some("/checkout")),
            ("/a//", Some("/a/")),
            ("/a/.", Some("/a/")),
            ("/a/./b/..", Some("/a/")),
            ("/..", Some("/")),
            ("/a\\b", Some("/a/b")),
            ("/a%00", None),
            ("/a%0d%0a", None),
            ("/100%", None),
            ("/%zz", None),
        ] {
            assert_eq!(reading(odd), Reading::Ambiguous, "{odd}");
            assert_eq!(canonical(odd).as_deref(), resolved, "{odd}");
        }
        let long = String::from("/") + &"%61".repeat(1400);
        assert_eq!(reading(&long), Reading::TooLong);
    }

    fn normal(target: &str) -> Vec<u8> {
        normalise(without_query(target), &mut [0; LONGEST_ODD_PATH]).expect("fits").to_vec()
    }

    /// The one decoding of a path that nobody resolves.
    fn decoded(target: &str) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), without_query(target));
        while let Some((&byte, after)) = rest.split_first() {
            let (value, after) = if byte == b'%' { escape(after).expect("two digits") } else { (byte, after) };
            out.push(value);
            rest = after;
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// What rules read of a canonical path is its plain decoding: there is nothing to resolve.
        #[test]
        fn rules_and_servers_read_a_canonical_path_alike(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("/"), Just("."), Just(".."), Just("%2f"), Just("%2E"), Just("%5C"), Just("\\"), Just(";"),
                    Just("%3b"), Just("a"), Just("%61"), Just("%c3%A9"), Just("%"), Just("%zz"), Just("%25"), Just("?q"),
                    Just("%00"), Just("+"), Just("{")
                ],
                0..12,
            ),
        ) {
            let target = String::from("/") + &pieces.concat();
            if let Some(one) = canonical(&target) {
                prop_assert_eq!(reading(&one), Reading::Canonical, "{} became {}", target, one);
                prop_assert_eq!(normal(&one), decoded(&one), "{} became {}", target, one);
                prop_assert_eq!(normal(&one), normal(&target), "{} became {}", target, one);
            } else {
                prop_assert_eq!(reading(&target), Reading::Ambiguous);
            }
        }
    }
}
