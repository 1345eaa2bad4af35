//! A request's head as HTTP/2 brings it, judged as the gate judges one of HTTP/1, and in the same form after it. `h2`
//! has refused already what is malformed in any case: fields of a connection, capitals, pseudo-fields out of place.

use http::header::{self, HeaderValue};
use http::{Method, Version, request};

use crate::gate::head::{Bad, HeadLimits, is_host, plain_number};
use crate::headers::canonical;

/// Settles what a request asks for.
///
/// # Errors
/// It is one that the gate would refuse, too; or its `:authority` and `Host` differ.
pub(crate) fn settle(parts: &mut request::Parts, limits: &HeadLimits) -> Result<(), Bad> {
    if parts.headers.len() > limits.headers {
        return Err(Bad::HeaderTooLarge);
    }
    // A tunnel to anywhere, and an answer that repeats what only servers should read.
    if matches!(parts.method, Method::CONNECT | Method::TRACE) {
        return Err(Bad::NotImplemented);
    }
    if parts.uri.scheme_str().is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return Err(Bad::Target);
    }
    judge_host(parts)?;
    judge_fields(parts, limits)?;
    let is_target = |target: &str| {
        (target.starts_with('/') || (target == "*" && parts.method == Method::OPTIONS))
            && target.bytes().all(|b| b != b'#' && (0x21..=0x7e).contains(&b))
    };
    if !parts.uri.path_and_query().is_some_and(|target| is_target(target.as_str())) {
        return Err(Bad::Target);
    }
    canonical::settle(parts, limits.paths, false)
}

/// One name of the host, whether it comes as `:authority`, as `Host`, or as both. Only who asks for a client of
/// HTTP/1.0 may leave it out.
fn judge_host(parts: &request::Parts) -> Result<(), Bad> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let (host, again) = (hosts.next().map(HeaderValue::as_bytes), hosts.next());
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let named = match authority.or(host) {
        Some(named) => named,
        None if parts.version == Version::HTTP_10 => return Ok(()),
        None => return Err(Bad::Host),
    };
    let agree = host.is_none_or(|host| host.eq_ignore_ascii_case(named));
    if again.is_none() && agree && !named.is_empty() && is_host(named) { Ok(()) } else { Err(Bad::Host) }
}

fn judge_fields(parts: &request::Parts, limits: &HeadLimits) -> Result<(), Bad> {
    let expects = parts.headers.get(header::EXPECT);
    if expects.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Bad::Expectation);
    }
    let mut lengths = parts.headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(given) = lengths.next() else { return Ok(()) };
    let length = length(given).filter(|_| lengths.next().is_none()).ok_or(Bad::ContentLength)?;
    if limits.body.is_some_and(|most| length > most) { Err(Bad::BodyTooLarge) } else { Ok(()) }
}

/// The number that a `content-length` is.
pub(super) fn length(value: &HeaderValue) -> Option<u64> {
    plain_number(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_classify::Paths;

    const LIMITS: HeadLimits = HeadLimits { bytes: 1024, headers: 4, body: Some(1000), paths: Paths::Strict };

    fn settled(method: &str, uri: &str, fields: &[(&str, &str)]) -> Result<(String, String), &'static str> {
        let mut builder = http::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        let mut parts = builder.body(()).expect("a request").into_parts().0;
        settle(&mut parts, &LIMITS).map_err(Bad::name)?;
        Ok((parts.uri.to_string(), String::from(parts.headers["host"].to_str().expect("text"))))
    }

    #[test]
    fn a_request_has_one_host_and_one_path() {
        let to = |target: &str, host: &str| Ok((String::from(target), String::from(host)));
        assert_eq!(settled("GET", "http://a:81/x?y", &[]), to("/x?y", "a:81"));
        assert_eq!(settled("GET", "https://a/%63", &[("host", "A")]), to("/c", "a"));
        assert_eq!(settled("GET", "/x", &[("host", "a")]), to("/x", "a"));
        assert_eq!(settled("GET", "http://a/", &[("host", "b")]), Err("host"));
        assert_eq!(settled("GET", "http://a/", &[("host", "a"), ("host", "a")]), Err("host"));
        assert_eq!(settled("GET", "/x", &[]), Err("host"));
        assert_eq!(settled("GET", "http://me@a/", &[]), Err("host"));
        assert_eq!(settled("GET", "ftp://a/", &[]), Err("target"));
        assert_eq!(settled("GET", "http://a/b/..%2fc", &[]), Err("ambiguous-path"));
    }

    #[test]
    fn what_the_gate_refuses_is_refused() {
        assert_eq!(settled("TRACE", "http://a/", &[]), Err("not-implemented"));
        assert_eq!(settled("POST", "http://a/", &[("content-length", "+1")]), Err("content-length"));
        assert_eq!(settled("POST", "http://a/", &[("content-length", "1001")]), Err("body-too-large"));
        assert_eq!(settled("POST", "http://a/", &[("expect", "tea")]), Err("expectation"));
        let many = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("c", "5")];
        assert_eq!(settled("GET", "http://a/", &many), Err("header-too-large"));
    }
}
