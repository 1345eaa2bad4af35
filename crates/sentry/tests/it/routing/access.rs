//! Who may ask at all, by network: at the listener where that is enough, else by request.

use std::io::Read;
use std::net::IpAddr;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::*;
use crate::tls::site::{self, Authority, Folder, mirror};

const TLS: &str = "tls.certificate = { cert = \"site.pem\", key = \"site.key\" }";

const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 9));

/// Whether a connection is reset before anything is said.
fn is_reset(at: SocketAddr, from: IpAddr) -> bool {
    let mut client = Client::connect_from(from, at);
    // It may be gone already.
    let _ = std::io::Write::write_all(&mut client.io, get("x", "/").as_bytes());
    match client.io.read(&mut [0]) {
        Ok(read) => {
            assert!(read > 0, "a reset, or an answer");
            false
        }
        Err(_) => true,
    }
}

#[test]
fn who_may_not_ask_the_only_application_is_reset_at_once() {
    let server = named("a");
    let text = |access: &str| app("a", "127.0.0.1:0", server.address, access);
    let sentry = start(&text("access = { deny = \"127.0.0.9\" }"));
    let at = sentry.addresses("a")[0];
    assert!(is_reset(at, OTHER));
    assert!(!is_reset(at, IpAddr::from([127, 0, 0, 1])));
    let counters = &sentry.apps()[0].counters;
    assert_eq!((counters.get(Counter::ConnectionsDenied), counters.get(Counter::ConnectionsAccepted)), (1, 1));
    assert_eq!(counters.get(Counter::Requests), 1);
    sentry.reload(parsed(&text("access = { allow = \"127.0.0.9\" }"))).expect("a reload");
    assert!(!is_reset(at, OTHER) && is_reset(at, IpAddr::from([127, 0, 0, 1])), "from the next connection on");
}

#[test]
fn who_may_ask_one_of_several_is_told_403_by_the_others() {
    let (inside, outside) = (named("inside"), named("outside"));
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let keys = "route = { path = \"/inside\" }\naccess = { allow = \"127.0.0.1\" }";
    let text = app("outside", at, outside.address, "") + &app("inside", at, inside.address, keys);
    let sentry = start(&text);
    let asked = |from: IpAddr, target: &str| {
        let mut client = Client::connect_from(from, at);
        client.send(get("x", target));
        client.answer()
    };
    let own = IpAddr::from([127, 0, 0, 1]);
    assert_eq!(asked(own, "/inside").text(), "inside /inside");
    assert_eq!(asked(OTHER, "/").text(), "outside /");
    for target in ["/inside", "/%69nside/x"] {
        let answer = asked(OTHER, target);
        assert_eq!((answer.status, &*answer.text()), (403, "403 Forbidden: client-denied\n"), "{target}");
    }
    with_client(at, |sender| async move {
        let request = http::Request::builder().uri("http://x/inside").body(()).expect("a request");
        assert_eq!(whole(ask(&sender, request).await).await.0.status(), 200);
    });
    assert_eq!(sentry.apps()[0].counters.bad(Bad::ClientDenied), 2);
    assert_eq!(of(&sentry, "inside").counters.get(Counter::Requests), 2, "what is denied is not policed");
}

#[test]
fn behind_trusted_proxies_their_clients_count() {
    let server = named("a");
    let keys = "access = { deny = [\"192.0.2.0/24\", \"127.0.0.9\"] }\nforwarded.trust = \"127.0.0.1\"";
    let proxied = app("a", "127.0.0.1:0", server.address, keys)
        .replace("\"127.0.0.1:0\"", "[\"127.0.0.1:0\", { address = \"127.0.0.1:0\", proxy = \"optional\" }]");
    let sentry = start(&proxied);
    let [plain, proxy] = sentry.addresses("a")[..] else { panic!("two listeners") };
    let asked = |fields: &str| {
        let mut client = Client::connect(plain);
        client.send(format!("GET / HTTP/1.1\r\nhost: x\r\n{fields}\r\n"));
        client.answer().status
    };
    assert_eq!(asked(""), 200);
    assert_eq!(asked("x-forwarded-for: 192.0.2.7\r\n"), 403);
    assert_eq!(asked("x-forwarded-for: 192.0.2.7\r\nx-forwarded-for: 198.51.100.7\r\n"), 200, "what a client forges");
    assert_eq!(asked("x-forwarded-for: 198.51.100.7, 192.0.2.7, 127.0.0.1\r\n"), 403);
    assert!(is_reset(plain, OTHER), "nobody believes it");
    let introduced = |client: &str| {
        let mut io = Client::connect(proxy);
        io.send(format!("PROXY TCP4 {client} 127.0.0.1 1 2\r\n{}", get("x", "/")));
        io.try_answer(false).map(|answer| answer.status).ok()
    };
    assert_eq!((introduced("198.51.100.7"), introduced("192.0.2.7")), (Some(200), None));
    assert_eq!(sentry.apps()[0].counters.get(Counter::ConnectionsDenied), 2);
}

/// Who may ask nobody there is reset before TLS; who may ask one of two applications gets a handshake, and 403 from the
/// other.
#[test]
fn who_may_ask_nobody_there_gets_no_handshake() {
    let (folder, authority, server) = (Folder::new("access"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example", "bank.example"]));
    let free = free_port();
    let app = |name: &str, access: &str| {
        format!(
            "[[application]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{free}\"\nservers = \"{}\"\n{TLS}\n\
             admission = \"none\"\nroute.host = \"{name}.example\"\naccess = {{ {access} }}\n",
            server.address
        )
    };
    let parsed = |shop: &str| {
        let text = format!("[sentry]\nworkers = 1\n{}{}", app("shop", shop), app("bank", "deny = \"127.0.0.9\""));
        Config::parse(&text, &folder.0.join("tidegate.toml")).unwrap_or_else(|errors| panic!("{errors}")).config
    };
    let sentry = Sentry::start(parsed("deny = \"127.0.0.0/8\""), Arc::new(NoRecords)).expect("a sentry");
    let asked = |last: u8, name: &'static str| {
        let client = Client::connect_from([127, 0, 0, last].into(), ([127, 0, 0, 1], free).into());
        let named = ServerName::try_from(format!("{name}.example")).expect("a name");
        let session = ClientConnection::new(authority.clients(None), named).expect("a client");
        let io = StreamOwned::new(session, client.io);
        site::ask(io, &format!("{name}.example"), "/").map(|(answer, _)| site::status(&answer).to_owned()).ok()
    };
    let counted = |counter| sentry.apps().iter().map(|app| app.counters.get(counter)).sum::<u64>();
    let given = |status: &str| Some(status.to_owned());
    assert_eq!((asked(9, "bank"), asked(9, "shop")), (None, None));
    assert_eq!((counted(Counter::ConnectionsDenied), counted(Counter::ConnectionsAccepted)), (2, 0));
    assert_eq!((asked(1, "bank"), asked(1, "shop")), (given("200"), given("403")));
    sentry.reload(parsed("allow = \"127.0.0.9\"")).expect("a reload");
    assert_eq!((asked(9, "bank"), asked(9, "shop")), (given("403"), given("200")), "one of them lets it in");
    assert_eq!((counted(Counter::ConnectionsDenied), counted(Counter::HandshakesFailed)), (2, 0));
}
