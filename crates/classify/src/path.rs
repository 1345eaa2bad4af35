//! The normal form of a path, which is what rules see.
//!
//! Servers disagree about what `//`, `/./`, `/../`, `\` and `%2F` mean. A client must not be able to put its request
//! into a better class by writing a path that the rules and the server read differently, so the classifier takes the
//! most generous reading: percent-escapes are decoded once (`%2F` too), a backslash is a slash, empty segments vanish,
//! and `.` and `..` (also as `..;x`) are resolved. Whether a server reads it so too is the question of `canonical.rs`.
//!
//! Letters keep their case, a final slash is kept, and an escape that is not two hexadecimal digits stays as it is.

/// The longest odd path that is brought into normal form. A longer one matches no rule that asks for a path, which can
/// only make a request less important.
pub(super) const LONGEST_ODD_PATH: usize = 4096;

/// The path of a request target: what comes before the query (or a fragment, which has no business there).
pub(super) fn without_query(target: &str) -> &[u8] {
    let bytes = target.as_bytes();
    match bytes.iter().position(|b| matches!(b, b'?' | b'#')) {
        Some(end) => &bytes[..end],
        None => bytes,
    }
}

/// Whether a path is surely in normal form already. Almost every path is, so this is one pass and no copy.
pub(super) fn is_plain(path: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in path {
        let odd = match byte {
            b'%' | b'\\' => true,
            b'/' | b'.' => after_slash,
            _ => false,
        };
        if odd {
            return false;
        }
        after_slash = byte == b'/';
    }
    path.first() == Some(&b'/')
}

/// Writes the normal form of `path` into `buffer`; `None` when the path is longer than the buffer.
///
/// A target without a leading slash (`*`) stays as it is; an empty one is the root.
pub(super) fn normalise<'b>(path: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    if path.len().max(1) > buffer.len() {
        return None;
    }
    let rooted = path.is_empty() || matches!(path[0], b'/' | b'\\' | b'%');
    if !rooted {
        buffer[..path.len()].copy_from_slice(path);
        return Some(&buffer[..path.len()]);
    }
    // Decoded bytes are appended; whenever a segment ends, what it means is settled in place. Never longer than the
    // input.
    let mut out = Output { buffer, length: 0, segment: 0 };
    let mut rest = path;
    while let Some((byte, after)) = next_byte(rest) {
        rest = after;
        match byte {
            b'/' | b'\\' => out.slash(),
            other => out.push(other),
        }
    }
    out.finish()
}

/// The output of [`normalise`]: `buffer[segment..length]` is the segment being written, without its slash.
struct Output<'b> {
    buffer: &'b mut [u8],
    length: usize,
    segment: usize,
}

impl<'b> Output<'b> {
    fn push(&mut self, byte: u8) {
        self.buffer[self.length] = byte;
        self.length += 1;
    }

    fn slash(&mut self) {
        if self.length == 0 || self.settle() {
            self.push(b'/');
        }
        self.segment = self.length;
    }

    /// Resolves the segment just written; says whether a slash must follow it. After `.` and `..` the slash is already
    /// there.
    fn settle(&mut self) -> bool {
        let segment = &self.buffer[self.segment..self.length];
        let name = segment.split(|&b| b == b';').next().unwrap_or(segment);
        match name {
            b"" if segment.is_empty() => false,
            b"." => {
                self.length = self.segment;
                false
            }
            b".." => {
                self.length = self.parent();
                false
            }
            _ => true,
        }
    }

    /// Where the segment before the current one begins; the root has itself for a parent.
    fn parent(&self) -> usize {
        let before = &self.buffer[..self.segment.saturating_sub(1)];
        before.iter().rposition(|&b| b == b'/').map_or(self.segment.min(1), |slash| slash + 1)
    }

    fn finish(mut self) -> Option<&'b [u8]> {
        if self.length == 0 {
            self.push(b'/');
        } else {
            self.settle();
        }
        Some(&self.buffer[..self.length])
    }
}

/// The next byte, with a percent-escape decoded.
fn next_byte(path: &[u8]) -> Option<(u8, &[u8])> {
    match path {
        [] => None,
        [b'%', high, low, rest @ ..] => match (hex(*high), hex(*low)) {
            (Some(high), Some(low)) => Some((high << 4 | low, rest)),
            _ => Some((b'%', &path[1..])),
        },
        [byte, rest @ ..] => Some((*byte, rest)),
    }
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn normal(path: &str) -> String {
        let mut buffer = [0; 64];
        let out = normalise(path.as_bytes(), &mut buffer).expect("fits");
        String::from_utf8_lossy(out).into_owned()
    }

    #[test]
    fn spellings_of_one_resource_meet() {
        for odd in [
            "/checkout/pay",
            "//checkout//pay",
            "/./checkout/./pay",
            "/x/../checkout/pay",
            "/../../checkout/pay",
            "/checkout%2Fpay",
            "/%63heckout/pay",
            "\\checkout\\pay",
            "%2Fcheckout/pay",
            "/x/..;v=1/checkout/pay",
            "/x/%2e%2E/checkout/pay",
        ] {
            assert_eq!(normal(odd), "/checkout/pay", "{odd}");
        }
    }

    #[test]
    fn escaping_out_of_a_prefix_is_seen() {
        assert_eq!(normal("/checkout/../search"), "/search");
        assert_eq!(normal("/checkout%2f..%2fsearch"), "/search");
        assert_eq!(normal("/checkout/.."), "/");
        assert_eq!(normal("/a/b/.."), "/a/");
        assert_eq!(normal("/a/b/."), "/a/b/");
    }

    #[test]
    fn what_needs_no_change_gets_none() {
        for same in ["/", "/a", "/a/", "/a.b/c..d", "/.well-known/x", "/...", "/a;b", "/%zz", "*", "/100%"] {
            assert_eq!(normal(same), same);
        }
        assert_eq!(normal(""), "/");
        assert_eq!(normal("/%252e"), "/%2e", "escapes are decoded once");
    }

    #[test]
    fn plain_paths_are_their_own_normal_form() {
        for path in ["/", "/a", "/a/b.c/", "/a;b", "/~x/-_"] {
            assert!(is_plain(path.as_bytes()), "{path}");
            assert_eq!(normal(path), path);
        }
        for path in ["", "*", "//", "/a//b", "/a/.b", "/%41", "/a\\b"] {
            assert!(!is_plain(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_path_longer_than_the_buffer_has_no_normal_form() {
        assert_eq!(normalise(b"/abc", &mut [0; 3]), None);
        assert_eq!(normalise(b"/%41%41%41", &mut [0; 10]), Some(&b"/AAA"[..]));
    }

    #[test]
    fn queries_are_cut() {
        assert_eq!(without_query("/a?b?c"), b"/a");
        assert_eq!(without_query("/a#b"), b"/a");
        assert_eq!(without_query("?b"), b"");
    }
}
