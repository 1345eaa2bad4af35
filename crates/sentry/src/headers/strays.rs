//! Fields that do not pass: those that servers mistake for others, and those by which anybody could speak in the name
//! of another.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::config::Forwarded;

/// Removes fields with an underscore, which many servers take for the same with a hyphen, and those of `identity`.
pub(super) fn remove(headers: &mut HeaderMap, identity: &[HeaderName]) {
    // One look at each name; the initials spare the list where nothing can be in it.
    let initials = identity.iter().fold(0, |initials, name| initials | initial(name));
    let is_stray = |name: &HeaderName| {
        name.as_str().as_bytes().contains(&b'_') || (initials & initial(name) != 0 && identity.contains(name))
    };
    if !headers.keys().any(is_stray) {
        return;
    }
    let strays: Vec<HeaderName> = headers.keys().filter(|name| is_stray(name)).cloned().collect();
    strays.iter().for_each(|name| drop(headers.remove(name)));
}

/// Whether a field says who asks or for what, so that `Connection` may not take it away on the way.
pub(super) fn names_who_asks(name: &HeaderName, rules: &Forwarded) -> bool {
    matches!(*name, header::COOKIE | header::AUTHORIZATION | header::FORWARDED)
        || name.as_str().starts_with("x-forwarded-")
        || rules.identity.contains(name)
}

/// Whether a connection may change to the protocol that it wishes for.
pub(super) fn may_change_to(wish: &HeaderValue, rules: &Forwarded) -> bool {
    rules.upgrade.iter().any(|protocol| wish.as_bytes().eq_ignore_ascii_case(protocol.as_bytes()))
}

/// Removes from a request's trailers what a trailer may not be (RFC 9110, 6.5.1), and what does not pass in a head.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap, identity: &[HeaderName]) {
    remove(trailers, identity);
    let forbidden: Vec<HeaderName> = trailers.keys().filter(|name| !may_trail(name)).cloned().collect();
    forbidden.iter().for_each(|name| drop(trailers.remove(name)));
}

/// Framing, routing, authentication, conditions and what the sentry itself says do not come after a body.
fn may_trail(name: &HeaderName) -> bool {
    const FORBIDDEN: [HeaderName; 21] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::EXPECT,
        header::FORWARDED,
        header::HOST,
        header::MAX_FORWARDS,
        header::PRAGMA,
        header::RANGE,
        header::REFERER,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::VIA,
    ];
    let prefixes = ["accept", "if-", "keep-alive", "proxy-", "tidegate-", "trace", "x-forwarded-", "x-request-id"];
    !FORBIDDEN.contains(name) && !prefixes.iter().any(|prefix| name.as_str().starts_with(prefix))
}

fn initial(name: &HeaderName) -> u32 {
    1 << (name.as_str().as_bytes()[0] & 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(names: &[&'static str]) -> HeaderMap {
        names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1"))).collect()
    }

    #[test]
    fn underscores_and_identity_do_not_pass() {
        let names = ["x_forwarded_for", "content_length", "x-real-ip", "x-original-url", "proxy", "x-mine", "cookie"];
        let mut all = headers(&names);
        remove(&mut all, &Forwarded::default().identity);
        assert_eq!(all, headers(&["x-mine", "cookie"]));
        let mut trusted = headers(&names);
        remove(&mut trusted, &[]);
        assert_eq!(trusted, headers(&["x-real-ip", "x-original-url", "proxy", "x-mine", "cookie"]));
    }

    #[test]
    fn only_what_may_trail_does() {
        let names = ["x-forwarded-for", "tidegate-quality", "cookie", "connection", "x-real-ip", "if-match", "x-sum"];
        let mut all = headers(&names);
        clean_trailers(&mut all, &Forwarded::default().identity);
        assert_eq!(all, headers(&["x-sum"]));
    }

    #[test]
    fn connections_change_only_to_what_is_listed() {
        let wish = |text: &'static str| may_change_to(&HeaderValue::from_static(text), &Forwarded::default());
        assert!(wish("websocket") && wish("WebSocket"));
        assert!(!wish("h2c") && !wish("websocket, h2c"));
    }
}
