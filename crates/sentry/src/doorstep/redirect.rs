//! Requests that are sent to https: where to. Who validates a name is answered here.

use crate::acme::challenge;
use crate::gate::head::{Bad, Examined, Head, HeadLimits, examine, header_table, leading_lines};
use crate::reject;

/// The answer to the request at the start of `bytes`, and its status; `None`: the head is not all here.
pub(super) fn answer(bytes: &[u8], limits: &HeadLimits, port: u16) -> Option<(u16, Vec<u8>)> {
    let bytes = &bytes[leading_lines(bytes)..];
    let mut table = header_table();
    let place = match examine(bytes, &mut table, limits) {
        Examined::Partial => return None,
        Examined::Bad(bad) => Err(bad),
        Examined::Whole(head) => match challenge::answer(&head) {
            Some(answer) => return Some((200, answer)),
            None => place(&head, port).ok_or(Bad::Host),
        },
    };
    Some(match place {
        Ok(place) => {
            let head = "HTTP/1.1 308 Permanent Redirect\r\ncontent-length: 0\r\nconnection: close\r\nlocation:";
            (308, format!("{head} {place}\r\n\r\n").into_bytes())
        }
        Err(bad) => {
            let mut out = Vec::new();
            reject::append_bad(bad, &mut out);
            (bad.status(), out)
        }
    })
}

/// The same place at the port of https. A target that names a host counts before the field.
fn place(head: &Head<'_, '_>, port: u16) -> Option<String> {
    let (authority, path) = match head.target.split_once("://") {
        Some((_, rest)) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
        None => (head.host?, head.target),
    };
    let path = if path.starts_with('/') { path } else { "/" };
    let host = match authority.rsplit_once(':') {
        Some((host, digits)) if !digits.contains(']') => host,
        _ => authority,
    };
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    (!host.is_empty()).then(|| format!("https://{host}{port}{path}"))
}

#[cfg(test)]
mod tests {
    use tidegate_classify::Paths;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 1024, headers: 20, body: None, paths: Paths::Strict };

    fn location(request: &str, port: u16) -> Option<String> {
        let (status, answer) = answer(request.as_bytes(), &LIMITS, port)?;
        let text = String::from_utf8(answer).expect("text");
        let location = text.lines().find_map(|line| line.strip_prefix("location: ")).map(str::to_owned);
        Some(location.unwrap_or_else(|| status.to_string()))
    }

    #[test]
    fn the_place_is_the_same_by_https() {
        let of = |line: &str, host: &str, port| location(&format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n"), port);
        assert_eq!(of("GET /a?b=c", "shop.example", 443).as_deref(), Some("https://shop.example/a?b=c"));
        assert_eq!(of("POST /a", "shop.example:8080", 8443).as_deref(), Some("https://shop.example:8443/a"));
        assert_eq!(of("GET /", "[2001:db8::1]:80", 443).as_deref(), Some("https://[2001:db8::1]/"));
        assert_eq!(of("GET http://a.example/x", "a.example", 443).as_deref(), Some("https://a.example/x"));
        assert_eq!(of("OPTIONS *", "shop.example", 443).as_deref(), Some("https://shop.example/"));
        assert_eq!(of("GET /", "", 443).as_deref(), Some("400"));
        assert_eq!(of("GET /", "a b", 443).as_deref(), Some("400"));
        assert_eq!(location("GET / HTTP/1.1\r\nHost: a", 443), None, "half a head");
    }
}
