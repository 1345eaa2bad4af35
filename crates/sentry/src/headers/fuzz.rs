//! Any bytes as a request's head: what goes on to the server is what may.

use http::{Response, Uri};
use tidegate_classify::{Paths, Reading, Rewrite, Route, Routes, reading};

use super::*;

/// Takes any bytes as a request's head and checks what a server would get: what the rules read, no hop-by-hop field,
/// none that `Connection` names, none of the sentry's own, and the client named as it is.
///
/// # Panics
/// When it does not hold: that is the finding.
pub fn headers(data: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(_)) = head.parse(data) else { return };
    let mut request = http::Request::new(());
    let target = head.path.and_then(|path| path.parse().ok());
    *request.uri_mut() = target.unwrap_or_else(|| Uri::from_static("/"));
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value)) {
            request.headers_mut().append(name, value);
        }
    }
    let named: Vec<HeaderName> = connection_names(request.headers());
    let client = Client::new(([192, 0, 2, 7], 1).into(), tidegate_engine::Timestamp::MAX);
    let rules = Forwarded { forwarded: true, ..Forwarded::default() };
    let (mut parts, ()) = request.into_parts();
    if canonical::settle(&mut parts, Paths::Strict, false).is_err() {
        return;
    }
    let read = parts.clone();
    let wishes = to_server(&mut parts, &client, &rules, &DECISIVE, false, || HeaderValue::from_static("id"));
    same_meaning(&read, &parts);
    same_without_prefix(&read, &parts, &client);
    let headers = &parts.headers;
    let stays = |name: &HeaderName| matches!(*name, header::COOKIE | header::AUTHORIZATION) || DECISIVE.contains(name);
    let ours = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_REQUEST_ID, header::FORWARDED, header::HOST];
    for name in named.iter().filter(|name| !ours.contains(name) && !stays(name)) {
        let wished = wishes.upgrade.is_some() || wishes.trailers;
        let again = wished && [header::UPGRADE, header::TE, header::CONNECTION].contains(name);
        assert!(again || !headers.contains_key(name), "{name} is named in Connection and went on");
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, HTTP2_SETTINGS, header::TRANSFER_ENCODING] {
        assert!(!headers.contains_key(&name), "{name} went on");
    }
    assert!(headers.keys().all(|name| !name.as_str().starts_with("tidegate-")), "one of our own fields went on");
    let is_stray = |name: &HeaderName| name.as_str().contains('_') || rules.identity.contains(name);
    assert!(!headers.keys().any(is_stray), "a field went on that nobody may send");
    assert_eq!(headers.get_all(X_FORWARDED_FOR).iter().collect::<Vec<_>>(), ["192.0.2.7"]);
    assert_eq!(headers.get_all(X_REQUEST_ID).iter().count(), 1);
    assert!(parts.uri.authority().is_none(), "the target is not in origin form");
    let mut answer = Response::new(());
    *answer.headers_mut() = headers.clone();
    let (mut parts, ()) = answer.into_parts();
    to_client(&mut parts, false);
    assert!(!parts.headers.contains_key(header::CONNECTION), "Connection went back to the client");
}

/// Fields that rules look at here.
static DECISIVE: [HeaderName; 1] = [HeaderName::from_static("x-tier")];

/// What rules read is what the server reads: method, target, host, cookies and the fields that rules look at.
fn same_meaning(read: &request::Parts, sent: &request::Parts) {
    assert_eq!(read.method, sent.method);
    assert_eq!(read.uri, sent.uri, "the rules read another target");
    let target = sent.uri.path_and_query().map_or("*", |target| target.as_str());
    assert_eq!(reading(target), Reading::Canonical, "{target:?} can be read in two ways");
    assert!(sent.headers.get_all(header::COOKIE).iter().count() <= 1, "several lines of cookies went on");
    for name in [header::HOST, header::COOKIE].iter().chain(&DECISIVE) {
        let of = |parts: &request::Parts| parts.headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        assert_eq!(of(read), of(sent), "the rules read another {name}");
    }
}

/// What a server gets of a path without a prefix is what is below that prefix for rules and routes, and can be read in
/// one way.
fn same_without_prefix(read: &request::Parts, sent: &request::Parts, client: &Client) {
    const PREFIXES: [&str; 3] = ["/a/b", "/a b", "/a"];
    let strip = Rewrite::new(&PREFIXES.map(String::from), "").expect("paths");
    let Some(target) = sent.uri.path_and_query().map(|target| target.as_str()) else { return };
    let Some((left, taken)) = strip.apply(target) else { return };
    assert_eq!(reading(&left), Reading::Canonical, "{left:?} of {target:?} can be read in two ways");
    assert!(left.parse::<Uri>().is_ok(), "{left:?} is no target");
    let rest = &target[taken.len()..];
    let slash = if rest.is_empty() || rest.starts_with('?') { "/" } else { "" };
    assert_eq!(left, [slash, rest].concat(), "of {target:?} without {taken:?}");
    let view = crate::proxy::View { parts: read, client };
    let is_below = |prefix: &&str| {
        let route = Route { host: None, path: Some((*prefix).to_owned()) };
        Routes::compile([(&route, 0)]).expect("a route").find(&view).is_some()
    };
    let segments = PREFIXES.iter().find(|prefix| is_below(prefix)).map(|prefix| prefix.matches('/').count());
    assert_eq!(taken.matches('/').count(), segments.unwrap_or(0), "{taken:?} was taken off {target:?}");
}

/// The names that `Connection` lists.
fn connection_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter();
    let tokens = values.flat_map(|value| value.as_bytes().split(|&b| b == b','));
    tokens.filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok()).collect()
}
