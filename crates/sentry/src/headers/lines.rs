//! Fields that nobody here reads go on as they came: as lines of the head they came in.
//!
//! *Intuition.* A browser's request has fifteen fields, of which four matter here. To make a map of all of them, with
//! each name in small letters and each value looked at once more, and to write them out again from there, costs several
//! times of copying the lines. *Awkward cases.* What stays a line can neither be removed nor read. So only fields
//! of a fixed list do, none of which belongs to a hop or to the sentry, or is removed where its sender is not trusted.
//! All others take the way through the map, as do these where the configuration names one of them.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Runs of lines that follow each other. Where there are more, all take the way through the map.
const RUNS: usize = 4;

/// Lines of a head that were found well formed, each to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    head: Bytes,
    runs: [Range<u16>; RUNS],
    has_date: bool,
}

impl Lines {
    /// No lines yet, of this head.
    pub(crate) fn of(head: Bytes) -> Self {
        Lines { head, ..Lines::default() }
    }

    /// Takes the line at these bytes, whose field's name this is. `false`: it is none, or there is no room.
    pub(crate) fn take(&mut self, name: &str, line: Range<usize>) -> bool {
        let (Ok(start), Ok(end)) = (u16::try_from(line.start), u16::try_from(line.end)) else { return false };
        if !self.head.get(line).is_some_and(|line| line.ends_with(b"\r\n")) {
            return false;
        }
        let free = self.runs.iter().position(|run| run.start == run.end).unwrap_or(RUNS);
        if let Some(last) = free.checked_sub(1).and_then(|last| self.runs.get_mut(last))
            && last.end == start
        {
            last.end = end;
        } else if let Some(run) = self.runs.get_mut(free) {
            *run = start..end;
        } else {
            return false;
        }
        self.has_date |= name.len() == 4 && name.eq_ignore_ascii_case("date");
        true
    }

    /// There is no room for one more: all of them become fields, so that those of one name stay in their order.
    pub(crate) fn give_up(&mut self, headers: &mut HeaderMap) {
        std::mem::take(self).add_to(headers);
    }

    /// One of them says the time.
    pub(crate) fn has_date(&self) -> bool {
        self.has_date
    }

    /// Appends them to a head.
    pub(crate) fn write(&self, head: &mut Vec<u8>) {
        self.runs().for_each(|run| head.extend_from_slice(run));
    }

    /// Makes fields of them, for whoever wants to read or change any.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        for line in self.runs().flat_map(|run| run.split_inclusive(|&byte| byte == b'\n')) {
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let value = self.head.slice_ref(line[colon + 1..].trim_ascii());
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_maybe_shared(value))
            {
                headers.append(name, value);
            }
        }
    }

    fn runs(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = |run: &Range<u16>| self.head.get(run.start.into()..run.end.into()).unwrap_or_default();
        self.runs.iter().map(bytes)
    }
}

/// Whether a request's field may stay a line. Names of any case.
pub(crate) fn may_pass(name: &str) -> bool {
    is_one_of(name, &OF_REQUESTS)
}

/// Whether an answer's field may.
pub(crate) fn may_pass_back(name: &str) -> bool {
    is_one_of(name, &OF_ANSWERS)
}

/// By the length of the name.
fn is_one_of(name: &str, by_length: &[&[&str]]) -> bool {
    let first = name.bytes().next().map(|byte| byte.to_ascii_lowercase());
    let is = |one: &&str| one.bytes().next() == first && one.eq_ignore_ascii_case(name);
    by_length.get(name.len()).is_some_and(|names| names.iter().any(is))
}

const OF_REQUESTS: [&[&str]; 26] = [
    &[],
    &[],
    &[],
    &["dnt"],
    &["from"],
    &["range"],
    &["cookie", "origin", "pragma"],
    &["referer", "sec-gpc"],
    &["if-match", "if-range", "priority"],
    &["save-data", "sec-ch-ua"],
    &["user-agent"],
    &[],
    &[],
    &["authorization", "cache-control", "if-none-match"],
    &["accept-charset", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "sec-fetch-user"],
    &["accept-encoding", "accept-language"],
    &["sec-ch-ua-mobile", "x-requested-with"],
    &["if-modified-since"],
    &["sec-ch-ua-platform"],
    &["if-unmodified-since"],
    &[],
    &[],
    &[],
    &[],
    &[],
    &["upgrade-insecure-requests"],
];

const OF_ANSWERS: [&[&str]; 33] = [
    &[],
    &[],
    &[],
    &["age"],
    &["date", "etag", "link", "vary"],
    &[],
    &["server"],
    &["alt-svc", "expires", "x-cache"],
    &["location"],
    &[],
    &[],
    &["content-md5"],
    &["x-powered-by"],
    &["accept-ranges", "cache-control", "content-range", "last-modified", "server-timing"],
    &[],
    &["referrer-policy", "x-frame-options"],
    &["content-encoding", "content-language", "x-xss-protection"],
    &[],
    &["permissions-policy"],
    &["content-disposition"],
    &[],
    &[],
    &["x-content-type-options"],
    &["content-security-policy"],
    &[],
    &["strict-transport-security"],
    &[],
    &["access-control-allow-origin"],
    &["access-control-allow-headers", "access-control-allow-methods"],
    &["access-control-expose-headers"],
    &[],
    &[],
    &["access-control-allow-credentials"],
];

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] =
        b"GET / HTTP/1.1\r\nHost: x\r\nAccept-Language:en \r\nDNT: 1\r\nA: b\r\nCookie:\r\nOdd: c\n\r\n";

    fn line(text: &str) -> Range<usize> {
        let at = HEAD.windows(text.len()).position(|window| window == text.as_bytes()).expect("it is there");
        at..at + text.len()
    }

    #[test]
    fn lines_go_on_as_they_came_or_as_fields() {
        let mut lines = Lines::of(Bytes::from_static(HEAD));
        for (name, text) in
            [("Accept-Language", "Accept-Language:en \r\n"), ("DNT", "DNT: 1\r\n"), ("Cookie", "Cookie:\r\n")]
        {
            assert!(lines.take(name, line(text)));
        }
        assert!(!lines.take("Odd", line("Odd: c\n")), "it does not end well");
        let mut written = b"begin\r\n".to_vec();
        lines.write(&mut written);
        assert_eq!(written, b"begin\r\nAccept-Language:en \r\nDNT: 1\r\nCookie:\r\n");
        let mut headers = HeaderMap::new();
        lines.add_to(&mut headers);
        let fields: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(fields, [("accept-language", &b"en"[..]), ("dnt", b"1"), ("cookie", b"")]);
        assert!(!lines.has_date());
    }

    #[test]
    fn there_is_room_for_a_few_runs() {
        let head = "Date: 1\r\nX: y\r\n".repeat(RUNS + 1);
        let mut lines = Lines::of(Bytes::from(head));
        let taken: Vec<bool> = (0..=RUNS).map(|i| lines.take("Date", i * 15..i * 15 + 9)).collect();
        assert_eq!(taken.iter().filter(|taken| **taken).count(), RUNS);
        assert!(lines.has_date() && !taken[RUNS]);
    }

    /// How fields begin that are read here, belong to a hop, or are set here.
    const MATTER: [&str; 21] = [
        "host",
        "connection",
        "keep-alive",
        "proxy-",
        "te",
        "transfer-",
        "upgrade-protocol",
        "http2-",
        "content-length",
        "content-type",
        "trailer",
        "expect",
        "forwarded",
        "x-forwarded",
        "x-request-id",
        "trace",
        "tidegate-",
        "grpc-",
        "set-cookie",
        "client-cert",
        "x-envoy-",
    ];

    #[test]
    fn lists_are_by_length_and_hold_nothing_that_matters_here() {
        let identity = crate::config::Forwarded::default().identity;
        for list in [&OF_REQUESTS[..], &OF_ANSWERS] {
            for (length, names) in list.iter().enumerate() {
                for name in *names {
                    assert_eq!(name.len(), length, "{name}");
                    assert!(!MATTER.iter().any(|matters| name.starts_with(matters)), "{name}");
                    assert!(!identity.iter().any(|field| field == name) && !name.contains('_'), "{name}");
                }
            }
        }
        assert!(may_pass("User-AGENT") && may_pass_back("ETag"));
        assert!(!may_pass("host") && !may_pass("X-Forwarded-For") && !may_pass_back("connection") && !may_pass(""));
    }
}
