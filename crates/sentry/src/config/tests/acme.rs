//! `[application.tls.acme]`: what is meant, what is shown, and what is refused.

use super::super::{AcmeChallenge, UntilIssued};
use super::{accepted, refused};

fn app(keys: &str) -> String {
    format!("[[application]]\nservers = \"127.0.0.1:9000\"\n[application.tls.acme]\n{keys}\n")
}

#[test]
fn what_is_shown_means_the_same() {
    let text = app("domains = [\"Shop.Example\", \"www.shop.example\"]\nemail = \"ops@shop.example\"\n\
         directory = \"https://localhost:14000/dir\"\ncache = \"/var/lib/tidegate/acme\"\nchallenge = \"http-01\"\nuntil = \"refuse\"");
    let config = accepted(&text).config;
    let acme = config.applications[0].tls.clone().expect("TLS").acme.expect("ACME");
    assert_eq!(acme.domains, ["shop.example", "www.shop.example"]);
    assert_eq!((acme.challenge, acme.until), (AcmeChallenge::Http, UntilIssued::Refuse));
    // Names of files outlive versions.
    assert_eq!(acme.certificate().display().to_string(), "/var/lib/tidegate/acme/shop.example-f85e8903f9c5bf5f.pem");
    assert_eq!(acme.account().display().to_string(), "/var/lib/tidegate/acme/account-711c0bc481d52e86.json");
    let shown = config.to_toml();
    assert_eq!(accepted(&shown).config.applications[0].tls.clone().expect("TLS").acme, Some(acme), "{shown}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let good = "cache = \"c\"\ndomains = \"a.example\"\n";
    let bad = [
        ("cache = \"c\"".to_owned(), "for which names is the certificate? add domains"),
        ("domains = \"a.example\"".to_owned(), "add cache = \"FOLDER\""),
        ("cache = \"c\"\ndomains = \"*.a.example\"".to_owned(), "name each host"),
        ("cache = \"c\"\ndomains = \"192.0.2.1\"".to_owned(), "\"192.0.2.1\" is not a host's name"),
        ("cache = \"c\"\ndomains = \"../a\"".to_owned(), "is not a host's name"),
        ("cache = \"c\"\ndomains = [\"a.example\", \"A.example\"]".to_owned(), "\"A.example\" is there twice"),
        (format!("{good}email = \"ops\""), "email = \"ops\" is not an address"),
        (format!("{good}directory = \"http://a.example/\""), "directory = \"http://a.example/\": write it like"),
        (format!("{good}challenge = \"dns-01\""), "challenge = \"dns-01\": write \"tls-alpn-01\" or \"http-01\""),
        (format!("{good}until = \"never\""), "until = \"never\": write \"self-signed\" or \"refuse\""),
        (format!("{good}ca = \"missing.pem\""), "ca \"missing.pem\" cannot be read"),
        (
            format!("{good}domain = \"b\""),
            "unknown key \"domain\" in [application.tls.acme]; did you mean \"domains\"?",
        ),
    ];
    for (keys, message) in bad {
        let told = refused(&app(&keys));
        assert!(told.contains(message), "{keys}: {told}");
    }
    let both = "[[application]]\nservers = \"127.0.0.1:9000\"\ntls = { self_signed = true, acme = { domains = \"a.example\", cache = \"c\" } }";
    assert!(refused(both).contains("give \"acme\" or self_signed = true, not both"));
}
