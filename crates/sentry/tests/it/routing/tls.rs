//! Several applications on one listener with TLS: names, certificates, and what is asked of clients.

use std::io::{Read, Write};

use rustls::pki_types::ServerName;
use tidegate_sentry::config::Config;

use super::*;
use crate::tls::site::{Authority, Folder, Secure, connect, read_answer, status};

/// A sentry with applications whose TLS settings are given.
fn start(folder: &Folder, apps: &[(&str, SocketAddr, &str)]) -> (SentryHandle, SocketAddr) {
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text: String = apps.iter().map(|(name, server, keys)| app(name, at, *server, keys)).collect();
    let text = format!("[sentry]\nworkers = 1\n{text}");
    let checked = Config::parse(&text, &folder.0.join("tidegate.toml")).unwrap_or_else(|errors| panic!("{errors}"));
    (Sentry::start(checked.config, Arc::new(NoRecords)).expect("a sentry"), at)
}

fn asked(io: &mut Secure, host: &str, path: &str) -> String {
    write!(io, "GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").expect("a write");
    read_answer(io)
}

fn pair(name: &str) -> String {
    format!("tls.certificate = {{ cert = \"{name}.pem\", key = \"{name}.key\" }}\n")
}

#[test]
fn every_application_s_certificates_are_found_by_name() {
    let (folder, authority) = (Folder::new("routing-names"), Authority::new("ca"));
    folder.pair("one", &authority.sign(&["one.example", "three.example"]));
    folder.pair("two", &authority.sign(&["*.two.example"]));
    let servers = [named("one"), named("two"), named("three")];
    let keys = [
        pair("one") + "route = { host = \"one.example\" }",
        pair("two") + "route = { host = \"*.two.example\" }",
        // The certificate for its name is another application's.
        pair("two") + "route = { host = \"three.example\" }",
    ];
    let apps: Vec<_> = ["one", "two", "three"].into_iter().zip(&servers).zip(&keys).collect();
    let apps: Vec<_> = apps.iter().map(|((name, server), keys)| (*name, server.address, keys.as_str())).collect();
    let (sentry, at) = start(&folder, &apps);
    let clients = authority.clients(None);
    for (host, wanted) in [("one.example", "one /"), ("a.two.example", "two /"), ("three.example", "three /")] {
        let answer = asked(&mut connect(at, &clients, host), host, "/");
        assert!(answer.ends_with(wanted), "{answer}");
    }
    // Another's host on this connection is misdirected, and so is a name that is nobody's.
    for host in ["three.example", "four.example"] {
        assert_eq!(status(&asked(&mut connect(at, &clients, "one.example"), host, "/")), "421", "{host}");
    }
    assert_eq!(sentry.apps()[0].counters.bad(Bad::Misdirected), 2);
}

/// Whoever's connection it is: a request gets nowhere that asks clients for certificates unless its handshake did.
#[test]
fn client_certificates_cannot_be_bypassed_by_another_host() {
    let (folder, authority) = (Folder::new("routing-clients"), Authority::new("ca"));
    let (partners, staff) = (Authority::new("partners"), Authority::new("staff"));
    folder.pair("site", &authority.sign(&["open.example", "partners.example", "staff.example"]));
    folder.write("partners.pem", &partners.pem);
    folder.write("staff.pem", &staff.pem);
    let server = named("server");
    let ask_for = |name: &str, wanted: &str| {
        format!(
            "{}tls.match_host = false\ntls.clients = \"{wanted}\"\ntls.client_ca = \"{name}.pem\"\n\
             route = {{ host = \"{name}.example\" }}",
            pair("site")
        )
    };
    let open = pair("site") + "tls.match_host = false\nroute = { host = \"open.example\" }";
    let (for_partners, for_staff) = (ask_for("partners", "required"), ask_for("staff", "optional"));
    let apps = [
        ("open", server.address, &*open),
        ("partners", server.address, &for_partners),
        ("staff", server.address, &for_staff),
    ];
    let (_sentry, at) = start(&folder, &apps);
    let partner = partners.sign(&["a.partner"]);
    let (nobody, partner) = (authority.clients(None), authority.clients(Some(&partner)));
    let hosts = ["open.example", "partners.example", "staff.example"];
    let statuses = |clients: &Arc<rustls::ClientConfig>, name: &str| {
        hosts.map(|host| status(&asked(&mut connect(at, clients, name), host, "/")).to_owned())
    };
    assert_eq!(statuses(&nobody, "open.example"), ["200", "421", "421"]);
    assert_eq!(statuses(&partner, "partners.example"), ["421", "200", "421"]);
    assert_eq!(statuses(&nobody, "staff.example"), ["421", "421", "200"]);
    // A client without a name has the first application's handshake.
    let mut nameless = (*nobody).clone();
    nameless.enable_sni = false;
    assert_eq!(statuses(&Arc::new(nameless), "open.example"), ["200", "421", "421"]);
    // Without a certificate, or with one that others would take, there is no handshake.
    for clients in [nobody, authority.clients(Some(&staff.sign(&["a.staff"])))] {
        let mut io = connect(at, &clients, "partners.example");
        let sent = write!(io, "GET / HTTP/1.1\r\nhost: partners.example\r\n\r\n");
        assert!(sent.is_err() || io.read(&mut [0]).is_err());
    }
}

/// HTTP/2 clients reuse a connection for every name in its certificate.
#[test]
fn coalesced_requests_are_sent_back() {
    let (folder, authority) = (Folder::new("routing-coalesced"), Authority::new("ca"));
    folder.pair("site", &authority.sign(&["open.example", "partners.example"]));
    folder.write("partners.pem", &Authority::new("partners").pem);
    let server = named("server");
    let open = pair("site") + "tls.match_host = false\nroute = { host = \"open.example\" }";
    let partners = pair("site")
        + "tls.match_host = false\ntls.clients = \"required\"\ntls.client_ca = \"partners.pem\"\n\
           route = { host = \"partners.example\" }";
    let (_sentry, at) = start(&folder, &[("open", server.address, &open), ("partners", server.address, &partners)]);
    let mut config = (*authority.clients(None)).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(at).await.expect("a connection");
        let name = ServerName::try_from("open.example").expect("a name");
        let io = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, socket).await.expect("a handshake");
        let (sender, connection) = h2::client::handshake(io).await.expect("a handshake");
        let test = async {
            for (host, wanted) in [("open.example", 200), ("partners.example", 421), ("open.example", 200)] {
                let request = http::Request::builder().uri(format!("https://{host}/")).body(()).expect("a request");
                let (head, ..) = whole(ask(&sender, request).await).await;
                assert_eq!(head.status(), wanted, "{host}");
            }
        };
        tokio::select! {
            () = test => {}
            ended = connection => panic!("the connection ended: {ended:?}"),
        }
    });
}
