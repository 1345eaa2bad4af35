//! Who may ask.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Admin;

/// Lets a request pass when it has the token, or when none is configured and it does not come from a foreign web page.
pub(super) async fn check(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let allowed = match &admin.token {
        Some(token) => has_token(request.headers(), token),
        None => names_this_machine(request.headers()),
    };
    match (allowed, &admin.token) {
        (true, _) => next.run(request).await,
        (false, Some(_)) => unauthorised(),
        (false, None) => {
            (StatusCode::FORBIDDEN, "ask by address or as localhost; other names need a token in [admin]\n")
                .into_response()
        }
    }
}

/// Lets a change pass when it has the token. Where none is configured nothing can be changed: whoever may look from
/// this machine need not be who may change.
pub(super) async fn check_change(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    match &admin.token {
        Some(token) if has_token(request.headers(), token) => next.run(request).await,
        Some(_) => unauthorised(),
        None => {
            let why = "changes need a token, and none is configured: set token or token_file in [admin], and restart\n";
            (StatusCode::FORBIDDEN, why).into_response()
        }
    }
}

fn unauthorised() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "send Authorization: Bearer <token> with the token of [admin]\n")
        .into_response()
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| value.split_at_checked("Bearer ".len()));
    given.is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"Bearer ") && equal(given, token.as_bytes()))
}

/// Compares in a time that does not tell how far the two agree.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// A web page that makes its own name point at 127.0.0.1 (DNS rebinding) still sends that name.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return true };
    let name = match host.rfind([':', ']']) {
        Some(at) if host.as_bytes()[at] == b':' => &host[..at],
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().expect("a header"))])
    }

    #[test]
    fn only_the_token_opens() {
        let authorised = |value| has_token(&with(header::AUTHORIZATION, value), "0123456789abcdef");
        assert!(authorised("Bearer 0123456789abcdef") && authorised("bearer 0123456789abcdef"));
        for wrong in ["Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Bearer ", "Basic 0123456789abcdef", ""] {
            assert!(!authorised(wrong), "{wrong}");
        }
        assert!(!has_token(&HeaderMap::new(), ""));
    }

    #[test]
    fn a_rebound_name_is_refused() {
        for host in ["127.0.0.1:9900", "localhost", "LOCALHOST:1", "[::1]:9900", "[::1]"] {
            assert!(names_this_machine(&with(header::HOST, host)), "{host}");
        }
        for host in ["evil.example", "evil.example:9900", "127.0.0.1.evil.example", "localhost.evil"] {
            assert!(!names_this_machine(&with(header::HOST, host)), "{host}");
        }
    }
}
