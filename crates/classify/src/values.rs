//! Conditions on headers and cookies.

use alloc::string::String;

use super::{RequestView, ValueMatch, ValuePattern};

/// Whether a request's header satisfies `wanted`, whose name is in lower case.
pub(super) fn header_matches(wanted: &ValueMatch, view: &impl RequestView) -> bool {
    header_of(view, &wanted.name).is_some_and(|value| wanted.value.matches(value))
}

/// The value of a request's header, whose name is in lower case.
pub(super) fn header_of<'v>(view: &'v impl RequestView, name: &str) -> Option<&'v [u8]> {
    view.header(name).map(<[u8]>::trim_ascii)
}

/// Whether a request has a cookie that satisfies `wanted`. When a name comes more than once, its first value counts, as
/// for most servers.
pub(super) fn cookie_matches(wanted: &ValueMatch, view: &impl RequestView) -> bool {
    cookie_of(view, &wanted.name).is_some_and(|value| wanted.value.matches(value))
}

/// The value of a request's first cookie of that name.
pub(super) fn cookie_of<'v>(view: &'v impl RequestView, name: &str) -> Option<&'v [u8]> {
    cookie(view.header("cookie")?, name.as_bytes())
}

fn cookie<'h>(header: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    cookies(header).find(|(found, _)| *found == name).map(|(_, value)| value)
}

impl ValuePattern {
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        match self {
            ValuePattern::Present => true,
            ValuePattern::Exact(text) => value == text.as_bytes(),
            ValuePattern::Prefix(text) => value.starts_with(text.as_bytes()),
            ValuePattern::Contains(text) => contains(value, text),
        }
    }
}

/// The value that a `set-cookie` header gives to the cookie of that name (RFC 6265, 4.1): what follows the first `;`
/// are attributes.
pub(super) fn cookie_set<'h>(header: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    let pair = header.split(|&b| b == b';').next()?;
    cookie(pair, name)
}

/// The cookies of a `cookie` header (RFC 6265, 5.4); quotes around a value are no part of it. Some servers read on to
/// the closing quote, some to the next `;`: what stands between an opening quote and the `;` after the closing one is
/// no cookie.
fn cookies(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut in_quotes = false;
    header.split(|&b| b == b';').filter_map(move |pair| {
        let pair = pair.trim_ascii();
        if in_quotes {
            in_quotes = !pair.ends_with(b"\"");
            return None;
        }
        let equals = pair.iter().position(|&b| b == b'=')?;
        let value = pair[equals + 1..].trim_ascii();
        in_quotes = value.starts_with(b"\"") && (value.len() == 1 || !value.ends_with(b"\""));
        (!in_quotes).then(|| (pair[..equals].trim_ascii(), unquoted(value)))
    })
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

fn contains(value: &[u8], text: &String) -> bool {
    text.is_empty() || value.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn cookies_are_split_as_browsers_send_them() {
        let all: Vec<_> = cookies(b"a=1; b = \"two\";c=; broken ;d=x=y").collect();
        let wanted: [(&[u8], &[u8]); 4] = [(b"a", b"1"), (b"b", b"two"), (b"c", b""), (b"d", b"x=y")];
        assert_eq!(all, wanted);
    }

    #[test]
    fn what_servers_read_differently_is_no_cookie() {
        let read = |header: &'static str| cookie(header.as_bytes(), b"tier");
        assert_eq!(read("a=\"x; tier=gold\"; b=1"), None, "in quotes");
        assert_eq!(read("a=\"x; y\"; tier=gold"), Some(&b"gold"[..]), "after them");
        assert_eq!(read("tier=\"gold"), None, "never closed");
        assert_eq!(read("tier=bulk; tier=gold"), Some(&b"bulk"[..]), "the first counts");
    }

    #[test]
    fn an_answer_s_cookie_is_before_its_attributes() {
        let set = |header: &'static str| cookie_set(header.as_bytes(), b"sid");
        assert_eq!(set("sid=\"31\"; Path=/; HttpOnly"), Some(&b"31"[..]));
        assert_eq!(set("sid=; Max-Age=0"), Some(&b""[..]));
        for other in ["", "sid", "other=1; sid=2", "; sid=3"] {
            assert_eq!(set(other), None, "{other}");
        }
    }

    #[test]
    fn patterns() {
        let text = || String::from("gold");
        assert!(ValuePattern::Exact(text()).matches(b"gold") && !ValuePattern::Exact(text()).matches(b"golden"));
        assert!(ValuePattern::Prefix(text()).matches(b"golden") && !ValuePattern::Prefix(text()).matches(b"a gold"));
        assert!(ValuePattern::Contains(text()).matches(b"a golden") && !ValuePattern::Contains(text()).matches(b"gol"));
        assert!(ValuePattern::Present.matches(b""));
    }
}
