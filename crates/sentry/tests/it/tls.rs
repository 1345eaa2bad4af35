//! TLS in front, with rustls as the client, and with curl and OpenSSL where they are installed.

mod acme;
mod alerts;
mod beside;
#[cfg(feature = "faults")]
mod classes;
pub(crate) mod hostile;
mod measurements;
mod room;
pub(crate) mod site;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, HandshakeKind};
use tidegate_sentry::config::Listen;
use tidegate_sentry::counters::Counter;

use self::site::{Authority, Folder, Pair, ask, connect, mirror, read_answer, start, status};
use super::support::{Client, RawServer, Running, until};

const ONE: &str = "tls.certificate = { cert = \"site.pem\", key = \"site.key\" }";

#[test]
fn requests_go_over_tls_and_servers_are_told() {
    let (folder, authority, server) = (Folder::new("plain"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry = start(folder.config(&[server.address], ONE));
    for versions in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let clients = authority.clients_of(None, &[versions]);
        let (answer, io) =
            ask(connect(sentry.address, &clients, "shop.example"), "shop.example", "/a").expect("an answer");
        assert_eq!(status(&answer), "200", "{answer}");
        assert!(answer.contains("x-forwarded-proto: https"), "{answer}");
        assert_eq!(io.conn.protocol_version().expect("a version"), versions.version);
    }
    // One connection, several requests, large bodies both ways.
    let mut io = connect(sentry.address, &authority.clients(None), "shop.example");
    for length in [0, 1, 70_000, 300_000] {
        write!(io, "POST / HTTP/1.1\r\nhost: shop.example\r\ncontent-length: {length}\r\n\r\n").expect("a write");
        io.write_all(&vec![b'x'; length]).expect("a write");
        io.flush().expect("a write");
        let answer = read_answer(&mut io);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(sentry.count(Counter::HandshakesFull), 3);
    drop(io);
    sentry.assert_quiet();
}

#[test]
fn clients_resume_after_a_reload_too() {
    let (folder, authority, server) = (Folder::new("resume"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let config = folder.config(&[server.address], ONE);
    let sentry = start(config.clone());
    for versions in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let clients = authority.clients_of(None, &[versions]);
        let kind = || {
            let io = connect(sentry.address, &clients, "shop.example");
            let (answer, io) = ask(io, "shop.example", "/").expect("an answer");
            assert_eq!(status(&answer), "200");
            io.conn.handshake_kind()
        };
        assert_eq!(kind(), Some(HandshakeKind::Full));
        assert_eq!(kind(), Some(HandshakeKind::Resumed));
        let mut config = folder.config(&[server.address], ONE);
        config.applications[0].listen = sentry.app().live().config.listen.clone();
        sentry.handle.reload(config).expect("a reload");
        assert_eq!(kind(), Some(HandshakeKind::Resumed), "the issuer is the process's");
    }
    assert_eq!((sentry.count(Counter::HandshakesFull), sentry.count(Counter::HandshakesResumed)), (2, 4));
}

#[test]
fn the_certificate_is_chosen_by_name_and_replaced_while_running() {
    let (folder, authority, server) = (Folder::new("names"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    folder.pair("wild", &authority.sign(&["*.shop.example"]));
    let both =
        "tls.certificate = [{ cert = \"site.pem\", key = \"site.key\" }, { cert = \"wild.pem\", key = \"wild.key\" }]";
    let sentry = start(folder.config(&[server.address], both));
    let shown = |name: &str, authority: &Authority| {
        let io = connect(sentry.address, &authority.clients(None), name);
        ask(io, name, "/").map(|(_, io)| io.conn.peer_certificates().expect("one")[0].to_vec())
    };
    let (site, wild) = (shown("shop.example", &authority), shown("www.shop.example", &authority));
    assert_ne!(site.expect("verified"), wild.expect("verified"));
    assert!(shown("bank.example", &authority).is_err(), "shown is the first, which is not for that name");
    let other = Authority::new("another");
    folder.pair("site", &other.sign(&["shop.example"]));
    sentry.handle.reload(folder.config(&[server.address], both)).expect("a reload");
    assert!(shown("shop.example", &authority).is_err() && shown("shop.example", &other).is_ok());
}

#[test]
fn a_request_for_another_host_is_misdirected() {
    let (folder, authority, server) = (Folder::new("host"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example", "bank.example"]));
    let sentry = start(folder.config(&[server.address], ONE));
    let clients = authority.clients(None);
    let asked = |host: &str, path: &str| {
        let (answer, _) = ask(connect(sentry.address, &clients, "shop.example"), host, path).expect("an answer");
        status(&answer).to_owned()
    };
    assert_eq!(asked("SHOP.example:8443", "/"), "200");
    assert_eq!(asked("bank.example", "/"), "421");
    assert_eq!(asked("shop.example", "http://bank.example/"), "421", "the target's host is the one that counts");
    let lenient = start(folder.config(&[server.address], &format!("{ONE}\ntls.match_host = false")));
    let io = connect(lenient.address, &clients, "shop.example");
    assert_eq!(status(&ask(io, "bank.example", "/").expect("an answer").0), "200");
}

#[test]
fn clients_are_known_by_their_certificates() {
    let (folder, authority, server) = (Folder::new("clients"), Authority::new("ca"), mirror());
    let own = Authority::new("clients");
    folder.pair("site", &authority.sign(&["shop.example"]));
    folder.write("clients.pem", &own.pem);
    let keys = |wanted: &str| {
        format!(
            "{ONE}\ntls.clients = \"{wanted}\"\ntls.client_ca = \"clients.pem\"\nrejection.decision_on_admitted = true\n\
             class = [{{ name = \"partners\", match = {{ certificate = \"*.partner.example\" }} }}, {{ name = \"rest\" }}]"
        )
    };
    let (partner, stranger) = (own.sign(&["a.partner.example"]), authority.sign(&["a.partner.example"]));
    let asked = |sentry: &Running, pair: Option<&Pair>| {
        let clients = authority.clients(pair);
        let mut answers = Vec::new();
        for _ in 0..2 {
            let (answer, io) = ask(connect(sentry.address, &clients, "shop.example"), "shop.example", "/")?;
            assert_eq!(io.conn.handshake_kind(), Some(HandshakeKind::Full), "who resumes shows nothing");
            answers.push(answer);
        }
        std::io::Result::Ok(answers.remove(1))
    };
    let required = start(folder.config(&[server.address], &keys("required")));
    let answer = asked(&required, Some(&partner)).expect("an answer");
    assert!(answer.contains("class=partners"), "{answer}");
    assert!(answer.contains("x-client-cert-name: a.partner.example"), "{answer}");
    assert!(answer.contains("client-cert: :MII"), "{answer}");
    assert!(asked(&required, None).is_err() && asked(&required, Some(&stranger)).is_err());
    until("both are counted", || required.count(Counter::HandshakesFailed) == 2);
    let optional = start(folder.config(&[server.address], &keys("optional")));
    let answer = asked(&optional, None).expect("an answer");
    assert!(answer.contains("class=rest") && !answer.contains("client-cert"), "{answer}");
    assert!(asked(&optional, Some(&stranger)).is_err());
}

/// A client may not say of itself what only its certificate can.
#[test]
fn what_certificates_say_no_client_says() {
    let (folder, authority, server) = (Folder::new("claims"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry = start(folder.config(&[server.address], ONE));
    let mut io = connect(sentry.address, &authority.clients(None), "shop.example");
    io.write_all(b"GET / HTTP/1.1\r\nhost: shop.example\r\nclient-cert: :AA==:\r\nx-client-cert-name: root\r\n\r\n")
        .expect("a write");
    let answer = read_answer(&mut io);
    assert!(!answer.contains("client-cert"), "{answer}");
}

#[test]
fn who_speaks_plainly_is_told() {
    let (folder, authority, server) = (Folder::new("alien"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry = start(folder.config(&[server.address], ONE));
    let answer = sentry.ask("GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (400, "This is plain HTTP, and this port speaks TLS: https.\r\n")
    );
    let mut client = sentry.client();
    client.send([0x80, 0x2e, 1, 3, 1]);
    client.assert_closed();
    until("both are counted", || sentry.count(Counter::HandshakesFailed) == 2);
    until("both are gone", || sentry.app().counters.connections_open() == 0);
}

#[test]
fn a_handshake_has_its_time() {
    let (folder, authority, server) = (Folder::new("slow"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry = start(folder.config(&[server.address], &format!("{ONE}\ntimeouts.handshake = \"100ms\"")));
    let (mut silent, mut half) = (sentry.client(), sentry.client());
    half.send([22, 3, 1, 2, 0, 1, 0]);
    silent.assert_closed();
    half.assert_closed();
    assert_eq!(sentry.count(Counter::TimeoutHandshake), 2);
}

#[test]
fn of_too_many_handshakes_the_one_who_has_most_goes() {
    let (folder, authority, server) = (Folder::new("many"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry =
        start(folder.config(&[server.address], &format!("{ONE}\nlimits.handshakes = 2\ntimeouts.handshake = \"1h\"")));
    // Each says hello and then nothing.
    let clients = authority.clients(None);
    let hello = || {
        let name = ServerName::try_from("shop.example").expect("a name");
        let mut bytes = Vec::new();
        ClientConnection::new(clients.clone(), name).expect("a client").write_tls(&mut bytes).expect("memory");
        let mut client = Client::connect(sentry.address);
        client.send(bytes);
        let mut first = [0];
        client.io.read_exact(&mut first).expect("the server's flight");
        client
    };
    let held: Vec<Client> = (0..6).map(|_| hello()).collect();
    until("those before are told to go", || sentry.count(Counter::ConnectionsMadeRoom) == 4);
    drop(held);
}

#[test]
fn a_tunnel_goes_over_tls() {
    let (folder, authority) = (Folder::new("tunnel"), Authority::new("ca"));
    let server = RawServer::start(|mut peer| {
        let Some(_) = peer.head() else { return };
        peer.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello");
        let got = peer.exactly(5).expect("five bytes");
        peer.send(got);
    });
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry = start(folder.config(&[server.address], ONE));
    let mut io = connect(sentry.address, &authority.clients(None), "shop.example");
    io.write_all(b"GET / HTTP/1.1\r\nhost: shop.example\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .expect("a write");
    let mut got = Vec::new();
    while !got.ends_with(b"hello") {
        let mut byte = [0];
        io.read_exact(&mut byte).expect("more");
        got.push(byte[0]);
    }
    io.write_all(b"12345").expect("a write");
    let mut back = String::new();
    io.read_to_string(&mut back).expect("a clean end");
    assert_eq!(back, "12345");
}

#[test]
fn plain_requests_are_sent_to_https() {
    let (folder, server) = (Folder::new("redirect"), mirror());
    let mut config = folder.config(&[server.address], "tls.self_signed = true");
    config.applications[0].listen[0] =
        Listen { redirect: Some(std::num::NonZeroU16::new(8443).expect("a port")), ..([127, 0, 0, 1], 0).into() };
    let sentry = start(config);
    let answer = sentry.ask("GET /a?b HTTP/1.1\r\nhost: shop.example:80\r\n\r\n");
    assert_eq!((answer.status, answer.field("location")), (308, Some("https://shop.example:8443/a?b")));
    let mut slow = sentry.client();
    for part in ["POST /a HT", "TP/1.1\r\nhost: shop.example\r\ncontent-length: 5\r\n", "\r\nhello"] {
        slow.send(part);
    }
    assert_eq!(slow.answer().status, 308);
    slow.assert_closed();
    assert_eq!(sentry.ask("NONSENSE\r\n\r\n").status, 400);
    assert_eq!(sentry.count(Counter::ServerConnects), 0);
    until("both are counted", || sentry.count(Counter::Status3xx) == 2 && sentry.count(Counter::Status4xx) == 1);
}

#[test]
fn a_self_signed_certificate_is_enough_to_try_out() {
    let (folder, server) = (Folder::new("self"), mirror());
    let sentry = start(folder.config(&[server.address], "tls.self_signed = true"));
    let Ok(out) = Command::new("curl")
        .args(["-sk", "--max-time", "60", &format!("https://localhost:{}/", sentry.address.port())])
        .args(["--resolve", &format!("localhost:{}:127.0.0.1", sentry.address.port())])
        .output()
    else {
        return assert!(std::env::var_os("CI").is_none(), "curl is missing");
    };
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("x-forwarded-proto: https"), "{text} {out:?}");
}

#[test]
fn http2_is_offered_and_its_streams_know_what_the_handshake_said() {
    let (folder, authority, server) = (Folder::new("http2"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let ca = folder.write("ca.pem", &authority.pem);
    let sentry = start(folder.config(&[server.address], ONE));
    let port = sentry.address.port();
    let curl = |more: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "--http2", "-w", "\n%{http_version} %{http_code}\n", "--cacert"]);
        command.arg(&ca).args(["--resolve", &format!("shop.example:{port}:127.0.0.1")]).args(more);
        command.arg(format!("https://shop.example:{port}/")).output()
    };
    let Ok(out) = curl(&[]) else {
        return assert!(std::env::var_os("CI").is_none(), "curl is missing");
    };
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.ends_with("\n2 200\n") && text.contains("x-forwarded-proto: https"), "{text} {out:?}");
    let elsewhere = curl(&["-H", "host: other.example"]).expect("curl");
    let text = String::from_utf8_lossy(&elsewhere.stdout);
    assert!(text.ends_with("\n2 421\n"), "{text} {elsewhere:?}");
    assert_eq!(sentry.count(Counter::Http2Requests), 2);
}

#[test]
fn who_agreed_on_a_protocol_speaks_it() {
    let (folder, authority, server) = (Folder::new("agreed"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry = start(folder.config(&[server.address], ONE));
    let said = |protocol: &[u8], text: &str| {
        let mut clients = (*authority.clients(None)).clone();
        clients.alpn_protocols = vec![protocol.to_vec()];
        let mut io = connect(sentry.address, &clients.into(), "shop.example");
        io.write_all(text.as_bytes()).expect("a write");
        let mut answer = Vec::new();
        // However it ends: without a farewell, that is an error.
        let _ = io.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let get = "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert!(said(b"http/1.1", get).starts_with("HTTP/1.1 200"));
    assert!(said(b"http/1.1", preface).starts_with("HTTP/1.1 505"));
    assert_eq!(said(b"h2", get), "");
    assert_eq!(said(b"h2", "INVALID CONNECTION PREFACE\r\n\r\n"), "");
}

#[test]
fn others_clients_verify_and_resume() {
    let (folder, authority, server) = (Folder::new("curl"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let ca = folder.write("ca.pem", &authority.pem);
    let sentry = start(folder.config(&[server.address], ONE));
    let port = sentry.address.port();
    let curl = |more: &[&str]| {
        let resolve = format!("shop.example:{port}:127.0.0.1");
        let url = format!("https://shop.example:{port}/");
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "--resolve", &resolve, "--cacert"]).arg(&ca).args(more);
        command.args([&url, &url]).output()
    };
    let Ok(out) = curl(&["--tlsv1.2", "--tls-max", "1.2"]) else {
        return assert!(std::env::var_os("CI").is_none(), "curl is missing");
    };
    assert!(out.status.success(), "{out:?}");
    assert!(curl(&["--tlsv1.3"]).is_ok_and(|out| out.status.success()));
    let old = curl(&["--tlsv1.0", "--tls-max", "1.1", "--ciphers", "DEFAULT:@SECLEVEL=0"]).expect("curl");
    assert!(!old.status.success(), "TLS 1.1 is not spoken");
    let openssl = Command::new("openssl")
        .args(["s_client", "-reconnect", "-tls1_2", "-servername", "shop.example", "-verify_return_error", "-CAfile"])
        .arg(&ca)
        .args(["-connect", &sentry.address.to_string()])
        .stdin(Stdio::null())
        .output();
    if let Ok(out) = openssl {
        let text = String::from_utf8_lossy(&out.stdout);
        assert_eq!(text.matches("Reused, TLSv1.2").count(), 5, "{text}");
        assert!(text.contains("Secure Renegotiation IS supported"), "{text}");
    }
}

/// A sentry that speaks TLS as the server of another one.
#[test]
fn servers_are_believed_when_they_show_who_they_are() {
    let (folder, authority, server) = (Folder::new("servers"), Authority::new("ca"), mirror());
    let own = Authority::new("sentries");
    folder.pair("site", &authority.sign(&["shop.internal"]));
    folder.pair("me", &own.sign(&["edge.internal"]));
    folder.write("ca.pem", &authority.pem);
    folder.write("own.pem", &own.pem);
    let wants_certificates =
        format!("{ONE}\ntls.clients = \"required\"\ntls.client_ca = \"own.pem\"\ntls.match_host = false");
    let behind = start(folder.config(&[server.address], &wants_certificates));
    let front = |keys: &str| {
        let keys: Vec<String> = keys.lines().map(|line| format!("server_tls.{line}")).collect();
        start(folder.config(&[format!("https://{}", behind.address)], &keys.join("\n")))
    };
    let ask = |front: &Running| front.ask("GET /through HTTP/1.1\r\nhost: shop.example\r\n\r\n");
    let all = "ca = \"ca.pem\"\nname = \"shop.internal\"\ncert = \"me.pem\"\nkey = \"me.key\"";
    let good = front(all);
    for _ in 0..3 {
        let answer = ask(&good);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.text().contains("x-client-cert-name: edge.internal"), "{}", answer.text());
    }
    assert_eq!((good.count(Counter::ServerConnects), good.count(Counter::ServerReuses)), (1, 2));
    // Another name, another authority, none of our own: no request goes there.
    let no_name = "ca = \"ca.pem\"\ncert = \"me.pem\"\nkey = \"me.key\"";
    let other_ca = "ca = \"own.pem\"\nname = \"shop.internal\"\ncert = \"me.pem\"\nkey = \"me.key\"";
    for keys in [no_name, other_ca, "ca = \"ca.pem\"\nname = \"shop.internal\""] {
        let answer = ask(&front(keys));
        assert_eq!(answer.status, 502, "{keys}: {answer:?}");
    }
    let blind = front("verify = false\ncert = \"me.pem\"\nkey = \"me.key\"");
    assert_eq!(ask(&blind).status, 200);
}

#[test]
fn http2_to_servers_is_agreed_on_in_the_handshake() {
    let (folder, authority, server) = (Folder::new("h2servers"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.internal"]));
    folder.write("ca.pem", &authority.pem);
    let front = |behind: &Running, scheme: &str| {
        let keys = "server_tls.ca = \"ca.pem\"\nserver_tls.name = \"shop.internal\"";
        start(folder.config(&[format!("{scheme}://{}", behind.address)], keys))
    };
    let ask = |front: &Running| front.ask("GET /through HTTP/1.1\r\nhost: shop.internal\r\n\r\n");
    let both = start(folder.config(&[server.address], ONE));
    let (over_http2, over_http1) = (front(&both, "h2"), front(&both, "https"));
    for _ in 0..3 {
        assert_eq!(ask(&over_http2).status, 200);
    }
    assert_eq!((both.count(Counter::Http2Connections), both.count(Counter::Http2Requests)), (1, 3));
    assert_eq!((ask(&over_http1).status, both.count(Counter::Http2Requests)), (200, 3));
    let only_http1 = start(folder.config(&[server.address], &format!("{ONE}\nlimits.streams = 0")));
    assert_eq!(ask(&front(&only_http1, "h2")).status, 502);
    assert_eq!(ask(&front(&only_http1, "https")).status, 200);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let (folder, authority) = (Folder::new("wrong"), Authority::new("ca"));
    folder.pair("site", &authority.sign(&["shop.example"]));
    folder.pair("other", &authority.sign(&["shop.example"]));
    let said = [
        ("tls.min_version = \"1.1\"\ntls.self_signed = true", "min_version = \"1.1\": write \"1.2\" or \"1.3\""),
        ("tls.match_host = true", "which certificate?"),
        ("tls.certificate = { cert = \"site.pem\" }", "a certificate needs two files"),
        ("tls.certificate = { cert = \"site.pem\", key = \"other.key\" }", "the key is not that of the certificate"),
        ("tls.certificate = { cert = \"none.pem\", key = \"site.key\" }", "cert \"none.pem\" cannot be read"),
        ("tls.self_signed = true\ntls.clients = \"required\"", "add client_ca"),
        ("tls.self_signed = true\ntls.clients = \"yes\"", "write \"off\" or \"optional\" or \"required\""),
        ("listen = { address = \":1\", tls = true }", "there is no certificate for this listener"),
        ("listen = { address = \":1\", redirect = 70000 }", "redirect = 70000 is no port"),
        ("listen = { address = \":1\", proxy = \"required\" }", "who may send PROXY headers?"),
    ];
    for (keys, wanted) in said {
        let errors = folder.refused(keys);
        assert!(errors.contains(wanted), "{keys}: {errors}");
    }
}
