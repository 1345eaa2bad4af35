//! What is changed on the way: paths and header fields, and nothing that anybody has decided by.

use super::*;
use crate::support::{Answer, Asked};

/// A server that shows the whole head, and answers with a few fields.
fn mirror() -> RawServer {
    RawServer::answering(|asked: &Asked| {
        let head = &asked.head;
        format!("HTTP/1.1 200 OK\r\nserver: own\r\nx-a: server\r\ncontent-length: {}\r\n\r\n{head}", head.len())
    })
}

fn one(server: &RawServer, keys: &str) -> (SentryHandle, SocketAddr) {
    let sentry = start(&app("app", "127.0.0.1:0", server.address, keys));
    let at = sentry.addresses("app")[0];
    (sentry, at)
}

fn asked(at: SocketAddr, request: &str) -> Answer {
    let mut client = Client::connect(at);
    client.send(request);
    client.answer()
}

/// A request with fields that nobody here reads, between two that somebody does.
const BROWSER: &str = "GET / HTTP/1.1\r\nUser-Agent: a b\r\nACCEPT-Language:de \r\nHost: x\r\nReferer: http://x/\r\n\
    Cookie: a=b\r\nX-Own: 1\r\nPragma: x\r\n\r\n";

#[test]
fn fields_that_nobody_reads_go_on_as_they_came() {
    let server = mirror();
    let (_sentry, at) = one(&server, "");
    let answer = asked(at, BROWSER);
    let head = answer.text();
    for line in ["User-Agent: a b", "ACCEPT-Language:de ", "Referer: http://x/", "Cookie: a=b", "x-own: 1", "Pragma: x"]
    {
        assert_eq!(head.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line}: {head}");
    }
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(answer.field("server"), Some("own"));
}

#[test]
fn fields_that_are_named_do_not_go_on_unread() {
    let server = mirror();
    let (_sentry, at) = one(&server, "forwarded.identity = [\"Referer\"]");
    let answer = asked(at, BROWSER);
    assert!(!answer.text().to_ascii_lowercase().contains("referer"), "{}", answer.text());
    assert!(answer.text().contains("a=b"));
    // What `Connection` names ends here, as long as the answer goes on.
    let server = RawServer::answering(|_: &Asked| {
        "HTTP/1.1 200 OK\r\nETag: 1\r\nConnection: keep-alive, etag\r\nVary: a\r\nDate: then\r\nContent-Length: 0\r\n\r\n"
            .to_owned()
    });
    let (_sentry, at) = one(&server, "");
    let answer = asked(at, BROWSER);
    assert_eq!([answer.field("etag"), answer.field("vary"), answer.field("date")], [None, Some("a"), Some("then")]);
}

const REWRITE: &str = "rewrite = { strip_prefix = \"/api\", add_prefix = \"/v2\" }\nrejection.decision_on_admitted = true\n\
    class = [{ name = \"gold\", match = { path_prefix = \"/api/gold\" } }, { name = \"rest\" }]";

#[test]
fn servers_are_told_paths_without_their_prefix_and_rules_with_it() {
    let server = RawServer::answering(|asked: &Asked| {
        let prefix = asked.field("x-forwarded-prefix").unwrap_or("nothing");
        format!(
            "HTTP/1.1 302 Found\r\nlocation: /v2/x\r\ncontent-length: {}\r\n\r\n{} {prefix}",
            asked.target.len() + 1 + prefix.len(),
            asked.target
        )
    });
    let (_sentry, at) = one(&server, REWRITE);
    for (target, wanted, class) in [
        ("/api/gold?a=/api", "/v2/gold?a=/api /api", "gold"),
        ("/%61pi/%67old", "/v2/gold /api", "gold"),
        ("http://x/api", "/v2 /api", "rest"),
        ("/gold", "/v2/gold nothing", "rest"),
        ("/apis", "/v2/apis nothing", "rest"),
    ] {
        let answer = asked(at, &format!("GET {target} HTTP/1.1\r\nhost: x\r\nx-forwarded-prefix: /forged\r\n\r\n"));
        assert_eq!(answer.text(), wanted, "{target}");
        assert_eq!(answer.field("tidegate-decision"), Some(&*format!("admitted; class={class}")));
        assert_eq!(answer.field("location"), Some("/v2/x"), "left alone");
    }
    with_client(at, |sender| async move {
        let request = http::Request::builder().uri("http://x/api/gold").body(()).expect("a request");
        let (head, text, _) = whole(ask(&sender, request).await).await;
        assert_eq!(text, "/v2/gold /api");
        assert_eq!(head.headers()["tidegate-decision"], "admitted; class=gold");
    });
}

#[test]
fn a_trusted_proxy_s_prefix_comes_before_ours() {
    let server = RawServer::answering(|asked: &Asked| ok(asked.field("x-forwarded-prefix").unwrap_or("nothing")));
    let (_sentry, at) = one(&server, &format!("{REWRITE}\nforwarded.trust = \"127.0.0.0/8\""));
    let request = "GET /api HTTP/1.1\r\nhost: x\r\nx-forwarded-prefix: /outer/\r\n\r\n";
    assert_eq!(asked(at, request).text(), "/outer/api");
}

const FIELDS: &str = "request_header = [{ set = \"X-Real-IP\", value = \"{client}\" }, { add = \"X-A\", value = \"more\" }, \
    { remove = \"X-Debug\" }, { set = \"X-Class\", value = \"{class} of {host}\", class = \"gold\" }]\n\
    response_header = [{ remove = \"Server\" }, { add = \"X-A\", value = \"{request_id}\" }, \
    { set = \"Strict-Transport-Security\", value = \"max-age=1\", refused = true }, \
    { set = \"X-Class\", value = \"{class}\", refused = true }]\n\
    class = [{ name = \"gold\", match = { path_prefix = \"/gold\" } }, { name = \"rest\" }]";

#[test]
fn fields_are_set_added_and_removed_in_both_directions() {
    let server = mirror();
    let (_sentry, at) = one(&server, FIELDS);
    let request = |path: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nhost: Shop:80\r\nx-real-ip: 1.2.3.4\r\nx-a: own\r\nx-debug: 1\r\nx-class: forged\r\n\r\n"
        )
    };
    let gold = asked(at, &request("/gold"));
    let head = gold.text().to_lowercase();
    let fields = |name: &str| -> Vec<&str> {
        head.lines().filter_map(|line| line.split_once(": ")).filter(|(key, _)| *key == name).map(|(_, v)| v).collect()
    };
    assert_eq!(
        (fields("x-real-ip"), fields("x-a"), fields("x-debug")),
        (vec!["127.0.0.1"], vec!["own", "more"], vec![])
    );
    assert_eq!(fields("x-class"), ["gold of shop:80"]);
    let id = fields("x-request-id")[0];
    let answered = gold.head.to_lowercase();
    assert!(!answered.contains("\r\nserver:"), "{answered}");
    assert!(answered.contains("x-a: server\r\n") && answered.contains(&format!("x-a: {id}\r\n")), "{answered}");
    assert!(answered.contains("strict-transport-security: max-age=1") && answered.contains("x-class: gold"));
    // Only for its class.
    assert!(asked(at, &request("/")).text().to_lowercase().contains("x-class: forged"));
}

#[test]
fn refusals_have_the_fields_that_are_wanted_there() {
    let server = mirror();
    let closed = app("app", "127.0.0.1:0", server.address, FIELDS).replace("admission = \"none\"", CLOSED);
    let sentry = start(&closed);
    let at = sentry.addresses("app")[0];
    let plain = "GET /gold HTTP/1.1\r\nhost: x\r\n\r\n";
    let odd = "GET /%67old HTTP/1.1\r\nhost: x\r\n\r\n";
    let grpc = "POST /gold HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n\r\n";
    for request in [plain, odd, grpc] {
        let answer = asked(at, request);
        assert_eq!(answer.field("strict-transport-security"), Some("max-age=1"), "{answer:?}");
        assert_eq!((answer.field("x-class"), answer.field("x-a")), (Some("gold"), None));
    }
    with_client(at, |sender| async move {
        let request = http::Request::builder().uri("http://x/").body(()).expect("a request");
        let (head, ..) = whole(ask(&sender, request).await).await;
        assert_eq!(head.status(), 503);
        assert_eq!(head.headers()["x-class"], "rest");
    });
}
