//! Which applications can share a listener, and what is said of those that cannot.

use super::{accepted, refused};

/// Applications with these keys.
fn apps(keys: &[&str]) -> String {
    let app = |(at, keys): (usize, &&str)| {
        format!("[[application]]\nname = \"{}\"\nservers = \"127.0.0.1:900{at}\"\n{keys}\n", ["a", "b", "c"][at])
    };
    keys.iter().enumerate().map(app).collect()
}

fn problems(keys: &[&str]) -> Vec<String> {
    let said = refused(&apps(keys));
    said.lines().map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned()).collect()
}

#[test]
fn routes_are_printed_as_they_are_read() {
    let text = apps(&["route = { host = [\"Shop.Example\", \"*.shop.example\"], path = [\"/api\", \"/v%31\"] }", ""]);
    let checked = accepted(&text);
    let routes = &checked.config.applications[0].routing.routes;
    let texts: Vec<_> = routes.iter().map(|route| (route.host.as_deref(), route.path.as_deref())).collect();
    let (shop, below) = (Some("shop.example"), Some("*.shop.example"));
    assert_eq!(texts, [(shop, Some("/api")), (shop, Some("/v1")), (below, Some("/api")), (below, Some("/v1"))]);
    let printed = checked.config.to_toml();
    assert_eq!(accepted(&printed).config.to_toml(), printed);
}

#[test]
fn two_with_the_same_route_are_told_both_lines() {
    let same =
        ["route = { host = \"a.example\" }", "route = [{ host = \"b\" }, { host = \"A.example.\", path = \"/\" }]"];
    assert_eq!(
        problems(&same),
        [
            "application \"b\" takes host \"a.example\" on 127.0.0.1:8080, and so does application \"a\" (line 4); give one \
          of them another route, or listen on another port"
        ]
    );
    assert!(problems(&["", ""])[0].contains("takes all requests without a route on 127.0.0.1:8080, and so does"));
    let apart =
        ["listen = [\":81\", \":82\"]", "listen = [\":82\", \":83\"]\nroute = { path = \"/b\" }", "listen = \":84\""];
    assert_eq!(accepted(&apps(&apart)).config.applications.len(), 3);
}

#[test]
fn what_comes_before_requests_must_agree() {
    let one = |problem: &[&str], said: &str| {
        let problems = problems(problem);
        assert!(problems.len() == 1 && problems[0].contains(said), "{problems:?}");
    };
    let route = "route = { path = \"/b\" }\n";
    let with = |keys: &str| format!("{route}{keys}");
    one(&["", &with("tls.self_signed = true")], "differ in its tls, which comes before a request shows whose it is");
    one(&["", &with("listen = { address = \"127.0.0.1:8080\", redirect = 443 }")], "differ in its redirect");
    one(
        &[
            "",
            &with("forwarded.trust = \"10.0.0.0/8\"\nlisten = { address = \"127.0.0.1:8080\", proxy = \"optional\" }"),
        ],
        "differ in its proxy",
    );
    one(&["", &with("paths = \"merge\"")], "read paths in different ways; write paths = \"strict\" for both");
    one(&["paths = \"as-is\"", &with("paths = \"as-is\"")], "can be read in one way only");
    one(&["", &with("admission = \"resource\"")], "needs a listener of its own; 127.0.0.1:8080 is shared");
    // Overlapping is not sharing.
    one(&["listen = \":8080\"", &with("")], "127.0.0.1:8080 is already taken by application \"a\"");
    one(&["listen = [\":81\", \":81\"]"], "[::]:81 is already taken by application \"a\"");
}

#[test]
fn routes_say_what_they_ask_for() {
    let one = |route: &str| problems(&[&format!("route = {route}")]).remove(0);
    assert_eq!(
        one("{ host = \"a:80\" }"),
        "\"a:80\" is not a host; write \"example.org\" or \"*.example.org\", without a port"
    );
    assert_eq!(one("{ path = \"api\" }"), "\"api\" is not a path; begin with \"/\" and leave the query out");
    assert_eq!(one("{}"), "this route has neither host nor path; give it one, or leave route out");
    assert_eq!(one("[]"), "route is empty; leave it out, or write route = { host = \"example.org\" }");
    assert_eq!(one("{ host = [\"a\", \"A\"] }"), "host \"a\" is there twice; leave one out");
    assert!(one("{ hosts = \"a\" }").contains("did you mean \"host\"?"), "{}", one("{ hosts = \"a\" }"));
}

#[test]
fn changes_are_printed_as_they_are_read() {
    let text = apps(&["rewrite = { strip_prefix = [\"/a/\", \"/a/b\"], add_prefix = \"/v2/\" }\n\
        request_header = [{ set = \"X-A\", value = \"{client} {{\" }, { remove = \"X-B\" }]\n\
        response_header = { add = \"X-C\", value = \"{class}\", class = \"default\", refused = true }"]);
    let printed = accepted(&text).config.to_toml();
    assert_eq!(accepted(&printed).config.to_toml(), printed);
    for line in [
        "strip_prefix = [",
        "add_prefix = \"/v2\"",
        "value = \"{client} {{\"",
        "refused = true",
        "class = [\"default\"]",
    ] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
}

#[test]
fn what_cannot_be_changed_is_said() {
    let one = |keys: &str| problems(&[keys]).remove(0);
    let request = |change: &str| one(&format!("request_header = {{ {change} }}"));
    for name in
        ["Connection", "transfer-encoding", "Content-Length", "TE", "Upgrade", "Trailer", "Keep-Alive", "Expect"]
    {
        assert!(request(&format!("remove = \"{name}\"")).contains("it is about this connection"), "{name}");
        let answer = one(&format!("response_header = {{ set = \"{name}\", value = \"x\" }}\nclass = [{{ nme = 1 }}]"));
        assert!(name == "Expect" || answer.contains("it is about this connection"), "{name}: {answer}");
    }
    assert_eq!(
        request("set = \"Host\", value = \"a\""),
        "\"Host\" cannot be changed: rules, log and server read the same host"
    );
    assert!(request("remove = \"x-forwarded-for\"").contains("see [application.forwarded]"));
    assert!(request("set = \"Tidegate-Quality\", value = \"1\"").contains("the sentry says it itself"));
    assert!(request("remove = \"grpc-timeout\"").contains("rules decide by it"));
    let decided = [
        ("X-Tier", "class = [{ name = \"a\", match = { header = { name = \"x-tier\" } } }, { name = \"b\" }]"),
        ("Cookie", "affinity = { cookie = \"session\" }"),
        ("X-Key", "tenants = { header = \"x-key\" }"),
        ("Cookie", "exempt = { cookie = { name = \"c\" } }"),
    ];
    for (name, keys) in decided {
        let said = one(&format!("request_header = {{ remove = \"{name}\" }}\n{keys}"));
        assert!(said.contains("rules decide by it"), "{name}: {said}");
    }
    assert_eq!(accepted(&apps(&["request_header = { remove = \"Cookie\" }"])).warnings.len(), 0);
    assert_eq!(
        request("set = \"X\", add = \"X\", value = \"\""),
        "give one of set = \"NAME\", add = \"NAME\" and remove = \"NAME\""
    );
    assert_eq!(request("set = \"X\""), "set needs to know what; add value = \"...\"");
    assert_eq!(request("remove = \"X\", value = \"1\""), "what is removed has no value; leave it out");
    assert!(request("set = \"X_A\", value = \"1\"").contains("is no header name"));
    assert!(
        request("set = \"X\", value = \"{clinet}\"").starts_with("{clinet} is unknown; known here: {client}, {host}")
    );
    assert!(request("set = \"X\", value = \"1\", class = \"defalt\"").contains("did you mean \"default\"?"));
    let response = |change: &str| one(&format!("response_header = {{ {change}, refused = true }}"));
    assert!(response("set = \"X\", value = \"{client}\"").contains("goes with {class} only"));
    assert!(response("set = \"Content-Type\", value = \"x\"").contains("leave refused out"));
    assert!(one("rewrite = { strip_prefix = \"/\" }").contains("\"/\" is not a path"));
    assert!(one("rewrite = { add_prefix = \"/a//b\" }").contains("\"/a//b\" is not a path"));
    assert!(one("paths = \"as-is\"\nrewrite = { strip_prefix = \"/a\" }").contains("leave out paths = \"as-is\""));
}

#[test]
fn who_may_ask_is_said_once() {
    let text = apps(&["access = { allow = [\"10.0.0.0/8\", \"192.0.2.1\"], deny = \"10.1.0.0/16\" }"]);
    let printed = accepted(&text).config.to_toml();
    assert_eq!(accepted(&printed).config.to_toml(), printed);
    let one = |keys: &str| problems(&[keys]).remove(0);
    let twice = "access = { allow = \"10.0.0.0/8\", deny = \"10.0.0.0/8\" }";
    assert_eq!(one(twice), "10.0.0.0/8 is allowed and denied; leave it out of one");
    assert!(one("access = { deny = \"10.0.0.0/99\" }").contains("is not a network"));
}
