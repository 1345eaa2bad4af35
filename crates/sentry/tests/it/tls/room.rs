//! TLS takes memory before anything is asked, and while nothing is: those who have much of it give it back.

use std::io::{Read, Write};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use tidegate_sentry::counters::Counter;

use super::ONE;
use super::site::{Authority, Folder, connect, start};
use crate::support::{Client, Door, RawServer, Running, until};

/// What may be held.
const ROOM: u64 = 256 << 10;

struct Site {
    sentry: Running,
    authority: Authority,
    _folder: Folder,
}

impl Site {
    fn before(server: &RawServer) -> Site {
        let (folder, authority) = (Folder::new("room"), Authority::new("ca"));
        folder.pair("site", &authority.sign(&["shop.example"]));
        let hours = "timeouts.handshake = \"1h\"\ntimeouts.header = \"1h\"\ntimeouts.client_idle = \"1h\"";
        let lines = format!("{ONE}\nlimits.held_bytes = {ROOM}\n{hours}");
        let sentry = start(folder.config(&[server.address], &lines));
        Site { sentry, authority, _folder: folder }
    }

    /// What is too much is given back, by closing so many connections at least.
    fn assert_given_back(&self, least: u64) {
        until("what is too much is given back", || {
            self.sentry.app().counters.held() <= ROOM && self.sentry.count(Counter::ConnectionsShed) >= least
        });
    }

    fn assert_nothing_held(&self) {
        until("nothing is held for who has left", || self.sentry.app().counters.held() == 0);
    }
}

#[test]
fn half_a_hello_is_held_and_gives_way() {
    let server = RawServer::echo();
    let site = Site::before(&server);
    // A record that says that 16,000 bytes follow, and all but a thousand of them.
    let mut half = vec![22, 3, 1, 0x3e, 0x80, 1, 0, 0x3e, 0x7c, 3, 3];
    half.resize(15_000, b'x');
    let many: Vec<_> = (0..40)
        .map(|_| {
            let mut client = Client::connect(site.sentry.address);
            client.send(&half);
            client
        })
        .collect();
    // Those of whom nobody could be told to go are turned away; the rest but what fits is closed.
    let count = |counter| site.sentry.count(counter);
    until("all came", || count(Counter::ConnectionsAccepted) + count(Counter::ConnectionsRefused) == 40);
    site.assert_given_back(40 - ROOM / 15_000 - count(Counter::ConnectionsRefused));
    drop(many);
    site.assert_nothing_held();
}

#[test]
fn handshakes_that_do_not_go_on_give_way() {
    let server = RawServer::echo();
    let site = Site::before(&server);
    let clients = site.authority.clients(None);
    let many: Vec<_> = (0..20)
        .map(|_| {
            let name = ServerName::try_from("shop.example").expect("a name");
            let mut hello = Vec::new();
            ClientConnection::new(clients.clone(), name).expect("a client").write_tls(&mut hello).expect("memory");
            let mut client = Client::connect(site.sentry.address);
            client.send(hello);
            let mut first = [0];
            // Who was before is closed meanwhile.
            client.io.read_exact(&mut first).expect("the server's flight");
            client
        })
        .collect();
    site.assert_given_back(9);
    drop(many);
    site.assert_nothing_held();
}

#[test]
fn sessions_that_rest_give_way_and_those_that_wait_for_a_server_stay() {
    let door = Door::default();
    let opened = door.clone();
    let server = RawServer::start(move |mut peer| {
        while peer.request().is_some() {
            if !peer.send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhe") {
                return;
            }
            opened.wait();
            peer.send("re");
        }
    });
    let site = Site::before(&server);
    let clients = site.authority.clients(None);
    let mut served = connect(site.sentry.address, &clients, "shop.example");
    write!(served, "GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n").expect("a write");
    served.flush().expect("a write");
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\nhe") {
        served.read_exact(&mut byte).expect("an answer that begins");
        answer.push(byte[0]);
    }
    let many: Vec<_> = (0..40)
        .map(|_| {
            let mut io = connect(site.sentry.address, &clients, "shop.example");
            while io.conn.is_handshaking() {
                io.conn.complete_io(&mut io.sock).expect("a handshake");
            }
            io
        })
        .collect();
    site.assert_given_back(19);
    door.open();
    let mut rest = [0; 2];
    served.read_exact(&mut rest).expect("the rest");
    assert_eq!(&rest, b"re");
    drop((many, served));
    site.assert_nothing_held();
}
