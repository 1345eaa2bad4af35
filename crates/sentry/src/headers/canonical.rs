//! A request's target and authority in one form, settled before any rule reads them: rules, log and server read the
//! same.

use http::header::{self, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use http::{Method, request};
use tidegate_classify::{Paths, Reading, canonical, reading};

use crate::gate::head::Bad;

/// Settles what a request asks for. `whole_server`: its target names a host and no path.
///
/// # Errors
/// It can be read in two ways, and `paths` does not let that pass. The gate refuses such requests first.
pub(crate) fn settle(parts: &mut request::Parts, paths: Paths, whole_server: bool) -> Result<(), Bad> {
    let has_user = parts.uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if has_user {
        return Err(Bad::Target);
    }
    to_origin_form(parts);
    if whole_server && parts.method == Method::OPTIONS {
        // RFC 9112, 3.2.4.
        parts.uri = Uri::from(PathAndQuery::from_static("*"));
    }
    respell(parts, paths)?;
    join_cookies(parts);
    Ok(())
}

/// A target in absolute form names the host itself, whatever `Host` says (RFC 9112, section 3.2.2).
pub(super) fn to_origin_form(parts: &mut request::Parts) {
    let Some(authority) = parts.uri.authority() else { return };
    let host = authority.as_str().rsplit('@').next().and_then(|host| HeaderValue::from_str(host).ok());
    if let Some(host) = host {
        parts.headers.insert(header::HOST, host);
    }
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    parts.uri = Uri::from(path);
}

fn respell(parts: &mut request::Parts, paths: Paths) -> Result<(), Bad> {
    let Some(target) = parts.uri.path_and_query() else { return Ok(()) };
    let target = match (reading(target.as_str()), paths) {
        (Reading::Canonical, _) => return Ok(()),
        (Reading::TooLong, _) => return Err(Bad::TargetTooLong),
        (_, Paths::AsIs) => return Ok(()),
        (Reading::Ambiguous, Paths::Strict) => return Err(Bad::AmbiguousPath),
        _ => canonical(target.as_str()).ok_or(Bad::AmbiguousPath)?,
    };
    parts.uri = Uri::from(PathAndQuery::try_from(target).map_err(|_| Bad::Target)?);
    Ok(())
}

/// Several lines of cookies are one list, of which some servers read one line only (RFC 6265, 5.4 forbids them).
fn join_cookies(parts: &mut request::Parts) {
    let lines = parts.headers.get_all(header::COOKIE);
    if lines.iter().nth(1).is_none() {
        return;
    }
    let one = lines.iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b"; "[..]);
    if let Ok(one) = HeaderValue::from_bytes(&one) {
        parts.headers.insert(header::COOKIE, one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(method: &str, uri: &str, paths: Paths, whole: bool) -> Result<(String, String), Bad> {
        let request = http::Request::builder().method(method).uri(uri).header("host", "a");
        let mut parts = request.body(()).expect("a request").into_parts().0;
        settle(&mut parts, paths, whole)?;
        Ok((parts.uri.to_string(), String::from(parts.headers["host"].to_str().expect("text"))))
    }

    #[test]
    fn absolute_form_names_the_host() {
        let to = |target: &str, host: &str| Ok((String::from(target), String::from(host)));
        assert_eq!(settled("GET", "http://b:81/x?y", Paths::Strict, false), to("/x?y", "b:81"));
        assert_eq!(settled("GET", "http://b", Paths::Strict, true), to("/", "b"));
        assert_eq!(settled("OPTIONS", "http://b", Paths::Strict, true), to("*", "b"));
        assert_eq!(settled("OPTIONS", "http://b/", Paths::Strict, false), to("/", "b"));
        assert_eq!(settled("GET", "http://user@b:81/x?y", Paths::Strict, false), Err(Bad::Target));
    }

    #[test]
    fn a_path_is_spelt_in_one_way() {
        let path = |target: &str, paths| settled("GET", target, paths, false).map(|(path, _)| path);
        assert_eq!(path("/%63heckout?%63", Paths::Strict).as_deref(), Ok("/checkout?%63"));
        assert_eq!(path("/a/..%2fb", Paths::Strict), Err(Bad::AmbiguousPath));
        assert_eq!(path("/a/..%2fb", Paths::Merge).as_deref(), Ok("/b"));
        assert_eq!(path("/a/..%2fb", Paths::AsIs).as_deref(), Ok("/a/..%2fb"));
        assert_eq!(path("/%zz", Paths::Merge), Err(Bad::AmbiguousPath));
    }

    #[test]
    fn lines_of_cookies_become_one() {
        let request = http::Request::builder().uri("/").header("cookie", "a=1").header("cookie", "b=2; c=3");
        let mut parts = request.body(()).expect("a request").into_parts().0;
        settle(&mut parts, Paths::Strict, false).expect("in order");
        assert_eq!(parts.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    }
}
