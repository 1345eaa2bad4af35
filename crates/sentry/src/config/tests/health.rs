//! `[application.health]` and `[application.mirror]`: what is meant, what is shown, and what is refused.

use super::super::{Asks, CheckWith, Spoken};
use super::{accepted, refused};

fn app(keys: &str) -> String {
    format!("[[application]]\nservers = \"127.0.0.1:9000\"\n{keys}\n")
}

fn health(keys: &str) -> super::super::Health {
    let checked = accepted(&app(&format!("[application.health]\n{keys}")));
    checked.config.applications.into_iter().next().expect("one").health
}

#[test]
fn how_a_server_is_asked_follows_from_its_address() {
    let cases = [
        ("", "127.0.0.1:1", "tcp"),
        ("", "https://127.0.0.1:1", "tls"),
        ("path = \"/up\"", "127.0.0.1:1", "http"),
        ("path = \"/up\"", "https://127.0.0.1:1", "https"),
        ("path = \"/up\"", "h2c://127.0.0.1:1", "h2c"),
        ("path = \"/up\"", "h2://127.0.0.1:1", "h2"),
        ("service = \"\"", "h2c://127.0.0.1:1", "grpc"),
        ("service = \"a.B\"", "h2://127.0.0.1:1", "grpcs"),
        ("with = \"http\"", "h2://127.0.0.1:1", "http"),
        ("with = \"tcp\"", "https://127.0.0.1:1", "tcp"),
    ];
    for (keys, address, with) in cases {
        assert_eq!(health(keys).with(Spoken::of(address).0).name(), with, "{keys} of {address}");
    }
    assert_eq!(health("with = \"http\"").path.as_deref(), Some("/"));
    assert_eq!(health("with = \"grpc\"").service.as_deref(), Some(""));
    assert_eq!(health("with = \"grpcs\"").with, Some(CheckWith { tls: true, asks: Asks::Grpc }));
}

#[test]
fn what_is_shown_means_the_same() {
    let text = app(
        "[application.health]\nwith = \"http\"\npath = \"/up\"\nmethod = \"HEAD\"\nport = 9100\nhost = \"shop.example\"\n\
         header = { name = \"X-Check\", value = \"yes\" }\nstatus = [204, \"401-403\"]\njitter = \"20%\"\n\
         [application.mirror]\nto = \"h2c://127.0.0.1:9001\"\nshare = \"10%\"\nbody = \"1KiB\"\nin_flight = 8\ntimeout = \"3s\"",
    );
    let config = accepted(&text).config;
    let shown = config.to_toml();
    let again = accepted(&shown).config;
    assert_eq!(again.applications[0].health, config.applications[0].health, "{shown}");
    assert_eq!(again.applications[0].mirror, config.applications[0].mirror, "{shown}");
    let health = &config.applications[0].health;
    assert_eq!((health.port.map(u16::from), &*health.status), (Some(9100), &[(204, 204), (401, 403)][..]));
    assert!([204, 401, 402, 403].into_iter().all(|status| health.is_good(status)));
    assert!([200, 400, 404].into_iter().all(|status| !health.is_good(status)));
    assert_eq!(config.applications[0].mirror.as_ref().map(|mirror| (mirror.share, mirror.body)), Some((0.1, 1024)));
}

#[test]
fn what_is_not_used_is_warned_of() {
    let warnings = accepted(&app("[application.health]\nstatus = 200")).warnings;
    let told: Vec<String> = warnings.iter().map(|warning| warning.at("shop.toml")).collect();
    assert!(told.iter().any(|told| told.contains("status has no use in a check that only connects")), "{told:?}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let bad = [
        ("with = \"htp\"", "with = \"htp\": write \"tcp\" or \"tls\" or \"http\""),
        ("service = \"a\"\npath = \"/up\"", "path has no use in a check of gRPC"),
        ("host = \"a\"", "host has no use in a check that only connects; give path = \"/...\""),
        ("with = \"http\"\nservice = \"a\"", "service has no use in a check over HTTP"),
        ("path = \"/\"\nstatus = \"2xx\"", "status = \"2xx\": write a status such as 200, or a range"),
        ("path = \"/\"\nstatus = true", "\"status\" must be a status such as 200"),
        ("path = \"/\"\nstatus = []", "status is empty: no answer would be good"),
        ("path = \"/\"\nmethod = \"POST\"", "a check must change nothing"),
        ("path = \"/\"\nhost = \"a b\"", "host = \"a b\" is not a host"),
        (
            "path = \"/\"\nheader = { name = \"Host\", value = \"a\" }",
            "is set by the check itself; give host = \"...\"",
        ),
        ("path = \"/\"\nheader = { name = \"X\" }", "a header field needs both"),
        ("path = \"/\"\nheader = { name = \"X\", value = \"a\\nb\" }", "is not a header's value"),
        ("port = 0", "port = 0 is out of range; give 1 to 65535"),
        ("prot = 1", "unknown key \"prot\" in [application.health]; did you mean \"port\"?"),
    ];
    for (keys, message) in bad {
        let told = refused(&app(&format!("[application.health]\n{keys}")));
        assert!(told.contains(message), "{keys}: {told}");
    }
    let bad = [
        ("share = \"10%\"", "where do the copies go? add to = \"host:port\""),
        ("to = \"127.0.0.1:9000\"", "is one of the servers: it would get requests twice"),
        ("to = \"127.0.0.1\"", "127.0.0.1"),
        ("to = \"a:1\"\nin_flight = 0", "in_flight = 0 is out of range"),
    ];
    for (keys, message) in bad {
        let told = refused(&app(&format!("[application.mirror]\n{keys}")));
        assert!(told.contains(message), "{keys}: {told}");
    }
}
