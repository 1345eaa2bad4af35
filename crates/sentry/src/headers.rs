//! Header fields on their way through: hop-by-hop fields end here (RFC 9110, section 7.6.1), and the server is told of
//! the client.

pub(crate) mod canonical;
pub(crate) mod changes;
pub(crate) mod due;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
pub(crate) mod lines;
pub(crate) mod spare;
pub(crate) mod strays;

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::{Version, request, response};

use crate::answered::Refusal;
use crate::client::Client;
use crate::config::Forwarded;
use crate::reject::DECISION;
use crate::reports::cost;
use tidegate_engine::MeasuredCost;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
const CLIENT_CERT_NAME: HeaderName = HeaderName::from_static("x-client-cert-name");
pub(crate) const QUALITY: HeaderName = HeaderName::from_static("tidegate-quality");
pub(crate) const COST: HeaderName = HeaderName::from_static("tidegate-cost");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What a request wants beyond an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    /// The protocol it wants to change to.
    pub(crate) upgrade: Option<HeaderValue>,
    /// It takes trailers.
    trailers: bool,
}

/// Makes a client's request fit for a server: one hop's fields are gone, and those that nobody may send, the target is
/// in origin form, the client is named. `decisive`: the fields that rules were decided on. `chunked`: its body has no
/// known length. Returns what it wished of this hop.
pub(crate) fn to_server(
    parts: &mut request::Parts,
    client: &Client,
    rules: &Forwarded,
    decisive: &[HeaderName],
    chunked: bool,
    fresh_id: impl FnOnce() -> HeaderValue,
) -> Wishes {
    let trusted = !rules.trust.is_empty() && {
        let ip = client.peer().ip().to_canonical();
        rules.trust.iter().any(|network| network.contains(&ip))
    };
    let is_decisive = |name: &HeaderName| decisive.contains(name) || strays::names_who_asks(name, rules);
    let mut wishes = strip_request(parts, chunked, is_decisive);
    wishes.upgrade = wishes.upgrade.filter(|wish| strays::may_change_to(wish, rules));
    strays::remove(&mut parts.headers, if trusted { &[] } else { &rules.identity });
    canonical::to_origin_form(parts);
    parts.version = Version::HTTP_11;
    if rules.x_forwarded {
        name_client(&mut parts.headers, client, trusted);
    }
    name_certificate(&mut parts.headers, client);
    if rules.forwarded {
        name_client_in_forwarded(&mut parts.headers, client, trusted);
    } else if !trusted {
        parts.headers.remove(header::FORWARDED);
    }
    if rules.request_id && !(trusted && parts.headers.contains_key(X_REQUEST_ID)) {
        parts.headers.insert(X_REQUEST_ID, fresh_id());
    }
    if let Some(upgrade) = &wishes.upgrade {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, upgrade.clone());
    } else if wishes.trailers {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        parts.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    wishes
}

/// What a server's answer tells the sentry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Told {
    /// What the request cost.
    pub(crate) cost: Option<MeasuredCost>,
    /// Who refused it, if a service further down did.
    pub(crate) refusal: Option<Refusal>,
}

/// Makes a server's answer fit for the client. Returns what it told the sentry.
pub(crate) fn to_client(parts: &mut response::Parts, upgraded: bool) -> Told {
    let headers = &mut parts.headers;
    let found = Found::among(headers);
    if found.hop_by_hop != 0 {
        let upgrade = if upgraded { headers.get(header::UPGRADE).cloned() } else { None };
        // With both lengths given, hyper went by the chunks; the other one must not reach the client.
        if found.has(header::TRANSFER_ENCODING) {
            headers.remove(header::CONTENT_LENGTH);
        }
        found.remove_hop_by_hop(headers, |_| false);
        if let Some(upgrade) = upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, upgrade);
        }
    }
    let mut told = Told::default();
    if found.tidegate {
        told.refusal = headers.remove(DECISION).as_ref().and_then(Refusal::read);
        told.cost = headers.remove(COST).and_then(|value| cost::parse(value.as_bytes()));
    }
    parts.version = Version::HTTP_11;
    told
}

/// Tells the server how good the answer should be (docs/degradation.md). At full quality it is told nothing.
pub(crate) fn ask_for(headers: &mut HeaderMap, quality: f64) {
    if let Some(value) = self::quality(quality) {
        headers.insert(QUALITY, value);
    }
}

/// The same as a value; `None`: at full quality.
pub(crate) fn quality(quality: f64) -> Option<HeaderValue> {
    let hundredths = (quality * 100.0).round().clamp(0.0, 99.0) as u32;
    let text = || format!("0.{hundredths:02}");
    (quality < 1.0).then(|| HeaderValue::from_str(&text()).expect("digits and a point"))
}

/// The request's id, when it has one.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(X_REQUEST_ID)
}

/// The fields of one hop.
static HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HTTP2_SETTINGS,
];

/// Which fields need work: one look at each name, so that the ordinary message pays for nothing else.
#[derive(Default)]
struct Found {
    /// A bit for each of [`HOP_BY_HOP`].
    hop_by_hop: u8,
    expect: bool,
    tidegate: bool,
}

impl Found {
    fn among(headers: &HeaderMap) -> Found {
        let mut found = Found::default();
        for name in headers.keys() {
            let text = name.as_str();
            match text.as_bytes()[0] {
                b'c' | b'h' | b'k' | b'p' | b'u' => found.look(text),
                b'e' => found.expect |= text == "expect",
                b't' => {
                    found.look(text);
                    found.tidegate |= text.starts_with("tidegate-");
                }
                _ => {}
            }
        }
        found
    }

    fn look(&mut self, name: &str) {
        if let Some(at) = HOP_BY_HOP.iter().position(|hop| hop.as_str() == name) {
            self.hop_by_hop |= 1 << at;
        }
    }

    fn has(&self, name: HeaderName) -> bool {
        self.of_hop().any(|hop| *hop == name)
    }

    /// The fields of this hop that there are.
    fn of_hop(&self) -> impl Iterator<Item = &'static HeaderName> {
        let bits = self.hop_by_hop;
        HOP_BY_HOP.iter().enumerate().filter(move |(at, _)| bits & (1 << at) != 0).map(|(_, name)| name)
    }

    /// Removes the fields of this hop, and those that `Connection` names and that are not `kept`.
    fn remove_hop_by_hop(&self, headers: &mut HeaderMap, kept: impl Fn(&HeaderName) -> bool) {
        if self.has(header::CONNECTION) {
            remove_named_in_connection(headers, kept);
        }
        for name in self.of_hop() {
            headers.remove(name);
        }
    }
}

fn strip_request(parts: &mut request::Parts, chunked: bool, is_decisive: impl Fn(&HeaderName) -> bool) -> Wishes {
    let headers = &mut parts.headers;
    let found = Found::among(headers);
    let mut wishes = Wishes::default();
    if found.hop_by_hop != 0 {
        let has = |token: &str| any_token(headers, header::CONNECTION, token);
        wishes.upgrade = headers.get(header::UPGRADE).filter(|_| has("upgrade")).cloned();
        wishes.trailers = any_token(headers, header::TE, "trailers");
        found.remove_hop_by_hop(headers, is_decisive);
    }
    if chunked {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if found.expect {
        // This hop answers `100-continue` itself, when the body is wanted.
        headers.remove(header::EXPECT);
    }
    if found.tidegate {
        // A client may not speak in the sentry's name.
        let ours: Vec<HeaderName> = headers.keys().filter(|n| n.as_str().starts_with("tidegate-")).cloned().collect();
        ours.iter().for_each(|name| drop(headers.remove(name)));
    }
    wishes
}

/// Removes the fields that `Connection` names, but never those that say who is asked for, or where the body ends, nor
/// those that are `kept`.
fn remove_named_in_connection(headers: &mut HeaderMap, kept: impl Fn(&HeaderName) -> bool) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&b| b == b','))
        .map(<[u8]>::trim_ascii)
        // The ordinary tokens name no field.
        .filter(|token| !token.eq_ignore_ascii_case(b"keep-alive") && !token.eq_ignore_ascii_case(b"close"))
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(name))
        .filter(|name| !kept(name))
        .collect();
    named.iter().for_each(|name| drop(headers.remove(name)));
}

/// Whether a value has this token among others.
pub(crate) fn has_token(value: &[u8], wanted: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted))
}

fn any_token(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    let tokens = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|&b| b == b',' || b == b';'));
    tokens.map(<[u8]>::trim_ascii).any(|token| token.eq_ignore_ascii_case(wanted.as_bytes()))
}

fn scheme(client: &Client) -> &'static str {
    if client.facts().is_some() { "https" } else { "http" }
}

/// What the client's certificate says of it, and nobody else's word for it.
fn name_certificate(headers: &mut HeaderMap, client: &Client) {
    let Some((facts, certificate)) = client.facts().and_then(|facts| Some((facts, facts.certificate()?))) else {
        return;
    };
    headers.insert(CLIENT_CERT, certificate.clone());
    let name = facts.names().first().and_then(|name| HeaderValue::from_str(name).ok());
    match name {
        Some(name) => headers.insert(CLIENT_CERT_NAME, name),
        None => headers.remove(CLIENT_CERT_NAME),
    };
}

fn name_client(headers: &mut HeaderMap, client: &Client, trusted: bool) {
    let address = client.forwarded_for();
    match headers.entry(X_FORWARDED_FOR) {
        // It came by a Unix socket: it has no address to add, and what it says counts where it is trusted.
        Entry::Occupied(_) if trusted && client.is_local() => {}
        Entry::Occupied(before) if client.is_local() => drop(before.remove_entry_mult()),
        Entry::Vacant(_) if client.is_local() => {}
        Entry::Occupied(mut before) if trusted => {
            let list = before.iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b", "[..]);
            let longer = [&list, &b", "[..], address.as_bytes()].concat();
            before.insert(HeaderValue::from_bytes(&longer).unwrap_or(address));
        }
        Entry::Occupied(mut before) => {
            before.insert(address);
        }
        Entry::Vacant(none) => {
            none.insert(address);
        }
    }
    if !(trusted && headers.contains_key(X_FORWARDED_PROTO)) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme(client)));
    }
    if !(trusted && headers.contains_key(X_FORWARDED_HOST)) {
        match headers.get(header::HOST).cloned() {
            Some(host) => headers.insert(X_FORWARDED_HOST, host),
            None => headers.remove(X_FORWARDED_HOST),
        };
    }
}

/// RFC 7239: `for=192.0.2.1;host=example.org;proto=http`, appended to what a trusted client said.
fn name_client_in_forwarded(headers: &mut HeaderMap, client: &Client, trusted: bool) {
    let ip = client.peer().ip().to_canonical();
    let node = if client.is_local() {
        "unknown".to_owned()
    } else if ip.is_ipv6() {
        format!("\"[{ip}]\"")
    } else {
        ip.to_string()
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty());
    let host = host.map(|host| format!(";host=\"{}\"", host.replace(['"', '\\'], ""))).unwrap_or_default();
    let mut text = format!("for={node}{host};proto={}", scheme(client));
    if trusted {
        for before in headers.get_all(header::FORWARDED).iter().rev().filter_map(|value| value.to_str().ok()) {
            text = format!("{before}, {text}");
        }
    }
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(header::FORWARDED, value);
    }
}

/// Whether a content type is gRPC's.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    begins(content_type, "application/grpc")
}

/// Whether a content type says of a body that it goes on as things happen.
pub(crate) fn is_stream(content_type: &[u8]) -> bool {
    STREAMS.into_iter().any(|stream| begins(content_type, stream))
}

fn begins(content_type: &[u8], with: &str) -> bool {
    content_type.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()))
}

/// What the content types of streams begin with. Not that of gRPC: nearly all calls are answered once, and one whose
/// answers go on is known by its pace, or by a rule. What is asked may be a conversation all the same.
const STREAMS: [&str; 2] = ["text/event-stream", "multipart/x-mixed-replace"];

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_engine::Timestamp;

    fn parts(uri: &str, fields: &[(&str, &str)]) -> request::Parts {
        let mut builder = http::Request::builder().uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).expect("a request").into_parts().0
    }

    fn sent(uri: &str, fields: &[(&str, &str)], rules: &Forwarded) -> (request::Parts, Wishes) {
        let client = Client::new("192.0.2.7:1234".parse().expect("an address"), Timestamp::ZERO);
        let mut parts = parts(uri, fields);
        let wishes = to_server(&mut parts, &client, rules, &[], false, || HeaderValue::from_static("fresh"));
        (parts, wishes)
    }

    fn get<'a>(parts: &'a request::Parts, name: &str) -> Option<&'a str> {
        parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    #[test]
    fn hop_by_hop_fields_and_those_named_in_connection_end_here() {
        let fields = [
            ("host", "a"),
            ("connection", "close, X-Secret, host"),
            ("x-secret", "1"),
            ("keep-alive", "5"),
            ("te", "gzip"),
            ("proxy-connection", "keep-alive"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("tidegate-decision", "admitted"),
            ("x-kept", "yes"),
        ];
        let (parts, wishes) = sent("/", &fields, &Forwarded::default());
        for gone in ["connection", "x-secret", "keep-alive", "te", "proxy-connection", "upgrade", "expect"] {
            assert_eq!(get(&parts, gone), None, "{gone}");
        }
        assert_eq!(get(&parts, "tidegate-decision"), None);
        assert_eq!(get(&parts, "host"), Some("a"));
        assert_eq!(get(&parts, "x-kept"), Some("yes"));
        assert!(wishes.upgrade.is_none(), "connection does not name upgrade");
    }

    #[test]
    fn upgrade_and_trailers_are_wished_again_of_the_next_hop() {
        let fields = [("host", "a"), ("connection", "Upgrade"), ("upgrade", "websocket")];
        let (parts, wishes) = sent("/", &fields, &Forwarded::default());
        assert_eq!(wishes.upgrade, Some(HeaderValue::from_static("websocket")));
        assert_eq!((get(&parts, "connection"), get(&parts, "upgrade")), (Some("upgrade"), Some("websocket")));
        let (parts, _) = sent("/", &[("host", "a"), ("te", "trailers, deflate;q=0.5")], &Forwarded::default());
        assert_eq!((get(&parts, "connection"), get(&parts, "te")), (Some("te"), Some("trailers")));
    }

    #[test]
    fn the_server_is_told_of_a_quality_below_full() {
        for (quality, told) in [(1.0, None), (0.999, Some("0.99")), (0.5, Some("0.50")), (0.0, Some("0.00"))] {
            let (mut parts, _) = sent("/", &[("host", "a"), ("tidegate-quality", "0.7")], &Forwarded::default());
            ask_for(&mut parts.headers, quality);
            assert_eq!(get(&parts, "tidegate-quality"), told, "{quality}");
        }
    }

    #[test]
    fn only_trusted_clients_are_believed() {
        let fields = [
            ("host", "a"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "b"),
            ("forwarded", "for=10.0.0.1"),
            ("x-request-id", "theirs"),
        ];
        let (parts, _) = sent("/", &fields, &Forwarded::default());
        assert_eq!(get(&parts, "x-forwarded-for"), Some("192.0.2.7"));
        assert_eq!(get(&parts, "x-forwarded-proto"), Some("http"));
        assert_eq!(get(&parts, "x-forwarded-host"), Some("a"));
        assert_eq!(get(&parts, "forwarded"), None);
        assert_eq!(get(&parts, "x-request-id"), Some("fresh"));
        let trust = vec!["192.0.2.0/24".parse().expect("a network")];
        let (parts, _) = sent("/", &fields, &Forwarded { trust, forwarded: true, ..Forwarded::default() });
        assert_eq!(get(&parts, "x-forwarded-for"), Some("10.0.0.1, 192.0.2.7"));
        assert_eq!(get(&parts, "x-forwarded-proto"), Some("https"));
        assert_eq!(get(&parts, "forwarded"), Some("for=10.0.0.1, for=192.0.2.7;host=\"a\";proto=http"));
        assert_eq!(get(&parts, "x-request-id"), Some("theirs"));
    }

    #[test]
    fn an_answer_with_both_lengths_keeps_neither() {
        let response = http::Response::builder()
            .header("transfer-encoding", "chunked")
            .header("content-length", "5")
            .header("connection", "x-hop")
            .header("x-hop", "1");
        let mut parts = response.body(()).expect("a response").into_parts().0;
        to_client(&mut parts, false);
        assert!(parts.headers.is_empty(), "{:?}", parts.headers);
    }
}
