//! When there is not enough processor time for all handshakes: important classes first.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::{ClientConfig, StreamOwned};
use tidegate_sentry::Process;
use tidegate_sentry::config::ProxyIn;

use super::*;

/// Partners are known by their network; who buys, by what is asked for.
const CLASSES: &str =
    "class = [{ name = \"gold\", match = [{ network = \"127.0.0.9\" }, { path = \"/buy\" }] }, { name = \"rest\" }]";

const PARTNER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 9));
const BUYER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 7));
const ANYBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 8));

struct Shop {
    process: Process,
    authority: Authority,
    _files: Folder,
    _server: RawServer,
}

impl Shop {
    fn open(name: &str, proxy: ProxyIn) -> Shop {
        let (folder, authority, server) = (Folder::new(name), Authority::new("ca"), mirror());
        folder.pair("site", &authority.sign(&["shop.example"]));
        let keys = format!("{ONE}\n{CLASSES}\nforwarded.trust = \"127.0.0.3\"");
        let mut config = folder.config(&[server.address], &keys);
        config.applications[0].listen[0].proxy = proxy;
        config.admin.listen = Some(([127, 0, 0, 1], 0).into());
        let process = Process::start(config, None).expect("a process");
        Shop { process, authority, _files: folder, _server: server }
    }

    /// Processor seconds that there are for handshakes.
    fn leave(&self, seconds: Option<f64>) {
        self.process.sentry().apps()[0].faults.leave_for_handshakes(seconds);
    }

    fn stranger(&self) -> Arc<ClientConfig> {
        self.authority.clients(None)
    }

    /// Whether a client gets a handshake, and an answer.
    fn serves(&self, from: IpAddr, clients: &Arc<ClientConfig>, path: &str) -> bool {
        self.serves_introduced(from, "", clients, path)
    }

    fn serves_introduced(&self, from: IpAddr, header: &str, clients: &Arc<ClientConfig>, path: &str) -> bool {
        let mut io = Client::connect_from(from, self.process.sentry().addresses("app")[0]).io;
        let name = ServerName::try_from("shop.example").expect("a name");
        // It may be reset by now.
        let _ = io.write_all(header.as_bytes());
        let io = StreamOwned::new(ClientConnection::new(clients.clone(), name).expect("a client"), io);
        match ask(io, "shop.example", path) {
            Ok((answer, _)) => {
                assert_eq!(status(&answer), "200", "{answer}");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
                false
            }
        }
    }
}

/// With two classes the floors are a twentieth of a second apart: of the last class strangers first are refused, then
/// who comes back, then strangers of the first.
#[test]
fn important_networks_get_handshakes_when_others_do_not() {
    let shop = Shop::open("classes", ProxyIn::Off);
    let known = shop.stranger();
    assert!(
        shop.serves(ANYBODY, &known, "/") && shop.serves(PARTNER, &shop.stranger(), "/"),
        "there is enough for all"
    );
    for (left, partner, comes_back, anybody) in
        [(0.07, true, true, true), (0.02, true, true, false), (-0.02, true, false, false), (-0.07, false, false, false)]
    {
        shop.leave(Some(left));
        assert_eq!(shop.serves(PARTNER, &shop.stranger(), "/"), partner, "{left}");
        assert_eq!(shop.serves(ANYBODY, &known, "/"), comes_back, "{left}");
        assert_eq!(shop.serves(ANYBODY, &shop.stranger(), "/"), anybody, "{left}");
    }
    assert_eq!(shop.process.sentry().apps()[0].counters.get(Counter::HandshakesRefused), 6);
    let mut admin = Client::connect(shop.process.admin_address().expect("an admin API"));
    admin.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let text = admin.answer().text();
    for (class, outcome, count) in
        [("gold", "begun", 2), ("gold", "refused", 1), ("rest", "begun", 1), ("rest", "refused", 5)]
    {
        let labels = format!("application=\"app\",class=\"{class}\",outcome=\"{outcome}\"");
        let wanted = format!("tidegate_handshakes_short_total{{{labels}}} {count}\n");
        assert!(text.contains(&wanted), "{wanted}{text}");
    }
}

/// Who is let in at the last of what there is for its like is served by the thread that gives way; nobody else is.
#[test]
fn what_may_be_a_flood_gives_way() {
    let shop = Shop::open("aside", ProxyIn::Off);
    let aside = || shop.process.sentry().apps()[0].counters.get(Counter::HandshakesAside);
    assert!(shop.serves(ANYBODY, &shop.stranger(), "/"));
    assert_eq!(aside(), 0, "there is enough for all");
    shop.leave(Some(0.07));
    assert!(shop.serves(ANYBODY, &shop.stranger(), "/"));
    assert_eq!(aside(), 1);
    assert!(shop.serves(PARTNER, &shop.stranger(), "/"));
    assert_eq!(aside(), 1);
}

#[test]
fn who_asked_for_what_is_important_is_known_by_it() {
    let shop = Shop::open("learned", ProxyIn::Off);
    assert!(shop.serves(BUYER, &shop.stranger(), "/buy") && shop.serves(ANYBODY, &shop.stranger(), "/"));
    shop.leave(Some(-0.02));
    assert!(!shop.serves(ANYBODY, &shop.stranger(), "/buy"), "what it wants to ask for nobody knows");
    for _ in 0..3 {
        assert!(shop.serves(BUYER, &shop.stranger(), "/buy"));
    }
    assert!(shop.serves(BUYER, &shop.stranger(), "/"));
    assert!(!shop.serves(BUYER, &shop.stranger(), "/"), "that was what its requests were good for");
}

/// Who was important before an upgrade is it afterwards.
#[test]
fn a_successor_knows_who_asked_for_what_is_important() {
    let (before, shop) = (Shop::open("before", ProxyIn::Off), Shop::open("successor", ProxyIn::Off));
    assert!(before.serves(BUYER, &before.stranger(), "/buy") && before.serves(ANYBODY, &before.stranger(), "/"));
    shop.leave(Some(-0.02));
    assert!(!shop.serves(BUYER, &shop.stranger(), "/"), "nobody said so yet");
    shop.process.recall(&before.process.state());
    assert!(shop.serves(BUYER, &shop.stranger(), "/"));
    assert!(!shop.serves(ANYBODY, &shop.stranger(), "/"));
}

#[test]
fn behind_a_proxy_its_clients_have_classes() {
    let shop = Shop::open("proxied", ProxyIn::Optional);
    shop.leave(Some(-0.02));
    let proxy = IpAddr::from([127, 0, 0, 3]);
    let header = |client: IpAddr| format!("PROXY TCP4 {client} 127.0.0.1 1 443\r\n");
    assert!(shop.serves_introduced(proxy, &header(PARTNER), &shop.stranger(), "/"));
    assert!(!shop.serves_introduced(proxy, &header(ANYBODY), &shop.stranger(), "/"));
    assert!(shop.serves(proxy, &shop.stranger(), "/"), "the proxy itself is trusted");
    assert!(shop.serves(PARTNER, &shop.stranger(), "/") && !shop.serves(ANYBODY, &shop.stranger(), "/"));
}
