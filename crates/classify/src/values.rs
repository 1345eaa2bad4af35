//! Conditions on headers and cookies.

use alloc::string::String;

use super::{RequestView, ValueMatch, ValuePattern};

/// Whether a request's header satisfies `wanted`, whose name is in lower case.
pub(super) fn header_matches(wanted: &ValueMatch, view: &impl RequestView) -> bool {
    view.header(&wanted.name).is_some_and(|value| wanted.value.matches(value.trim_ascii()))
}

/// Whether a request has a cookie that satisfies `wanted`. When a name comes more than once, any of its values may.
pub(super) fn cookie_matches(wanted: &ValueMatch, view: &impl RequestView) -> bool {
    view.header("cookie").is_some_and(|header| {
        cookies(header).any(|(name, value)| name == wanted.name.as_bytes() && wanted.value.matches(value))
    })
}

/// The value of the first cookie of that name.
pub(super) fn cookie<'h>(header: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
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

/// The cookies of a `cookie` header (RFC 6265, 5.4); quotes around a value are no part of it.
fn cookies(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    header.split(|&b| b == b';').filter_map(|pair| {
        let equals = pair.iter().position(|&b| b == b'=')?;
        Some((pair[..equals].trim_ascii(), unquoted(pair[equals + 1..].trim_ascii())))
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
