//! Thousands of hostile connections by TLS, and honest clients beside them. The sentry has 256 MiB.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tidegate_sentry::config::{Listen, Tls};

use super::ONE;
use super::site::{Authority, Folder, Secure, ask, status};
use crate::hostile::{CLIENTS, Setup, as_many_as, withstand};
use crate::support::hostile::{Honest, connect_from, hostile_address};

/// Hostile clients that need a handshake, and that need none.
const SHAKEN: usize = 400;
const UNSHAKEN: usize = 2000;

/// A client waits for so long at most for the sentry's part of a handshake, and counts as turned away then.
const SHAKING: Duration = Duration::from_secs(20);

/// What each hostile client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Sends half of a large hello.
    HalfHello,
    /// Sends a hello, and leaves the answer unread.
    NoFinish,
    /// Asks for nothing.
    Idle,
    /// Sends half of a large head.
    HalfHead,
    /// Asks for what is large, and does not read it.
    Unread,
    /// Changes its keys again and again.
    KeyUpdates,
}

/// A connection of an attack.
#[expect(dead_code, reason = "is held open")]
enum Hostile {
    Plain(TcpStream),
    Shaken(Box<Secure>),
}

impl Kind {
    fn attack(self, address: SocketAddr, clients: &Arc<ClientConfig>) -> Vec<Hostile> {
        let count = as_many_as(if matches!(self, Kind::HalfHello | Kind::NoFinish) { UNSHAKEN } else { SHAKEN });
        let all: Vec<_> = (0..count).filter_map(|number| self.connect(number, address, clients)).collect();
        assert!(all.len() > count / 2, "{self:?}: {} of {count} connected", all.len());
        all
    }

    /// A connection on which it does its worst; `None`: it was turned away.
    fn connect(self, number: usize, address: SocketAddr, clients: &Arc<ClientConfig>) -> Option<Hostile> {
        let mut io = connect_from(hostile_address(number), address).ok()?;
        match self {
            Kind::HalfHello => {
                // A record that says that 16,000 bytes follow, and all but a thousand of them.
                let mut half = vec![22, 3, 1, 0x3e, 0x80, 1, 0, 0x3e, 0x7c, 3, 3];
                half.resize(15_000, b'x');
                io.write_all(&half).ok()?;
                return Some(Hostile::Plain(io));
            }
            Kind::NoFinish => {
                client(clients).write_tls(&mut io).ok()?;
                return Some(Hostile::Plain(io));
            }
            _ => {}
        }
        let mut io = shaken(io, clients)?;
        // What the sentry takes without a wait.
        io.sock.set_nonblocking(true).ok()?;
        match self {
            Kind::HalfHead => drop(write!(io, "GET / HTTP/1.1\r\nHost: t\r\nX: {}", "x".repeat(15_000))),
            Kind::Unread => drop(io.write_all(b"GET /honest/large HTTP/1.1\r\nHost: t\r\n\r\n")),
            Kind::KeyUpdates => {
                for _ in 0..500 {
                    io.conn.refresh_traffic_keys().ok()?;
                }
                while io.conn.wants_write() && io.conn.write_tls(&mut io.sock).is_ok() {}
            }
            _ => {}
        }
        Some(Hostile::Shaken(Box::new(io)))
    }
}

fn client(clients: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("shop.example").expect("a name");
    ClientConnection::new(clients.clone(), name).expect("a client")
}

fn shaken(io: TcpStream, clients: &Arc<ClientConfig>) -> Option<Secure> {
    io.set_read_timeout(Some(SHAKING)).ok()?;
    let mut io = StreamOwned::new(client(clients), io);
    while io.conn.is_handshaking() {
        io.conn.complete_io(&mut io.sock).ok()?;
    }
    Some(io)
}

/// Where an application listens whose certificate lies in a folder.
pub fn secured(folder: &Path) -> (Vec<Listen>, Option<Tls>) {
    // It is another process's to remove.
    let folder = std::mem::ManuallyDrop::new(Folder(folder.to_owned()));
    let app = folder.config(&["127.0.0.1:1"], ONE).applications.remove(0);
    (app.listen, app.tls)
}

/// Honest clients, which shake hands for each request.
fn honest(address: SocketAddr, clients: &Arc<ClientConfig>) -> Honest {
    let clients = clients.clone();
    Honest::start_with(CLIENTS, move |own, tally| {
        tally.note(is_served(own, address, &clients));
    })
}

fn is_served(own: IpAddr, address: SocketAddr, clients: &Arc<ClientConfig>) -> bool {
    let io = connect_from(own, address).ok().and_then(|io| shaken(io, clients));
    let answer = io.and_then(|io| ask(io, "shop.example", "/honest").ok());
    answer.is_some_and(|(answer, _)| status(&answer) == "200")
}

fn assert_withstood(kind: Kind) {
    let (folder, authority) = (Folder::new(&format!("hostile-{kind:?}")), Authority::new("ca"));
    folder.pair("site", &authority.sign(&["shop.example"]));
    let setup = Setup { refuses: true, tls: Some(&folder.0), ..Setup::default() };
    // Each with tickets of their own.
    let (honest_clients, hostile_clients) = (authority.clients(None), authority.clients(None));
    withstand(
        &format!("{kind:?} by TLS"),
        setup,
        |sentry| honest(sentry.address, &honest_clients),
        |sentry| kind.attack(sentry.address, &hostile_clients),
    );
}

#[test]
fn half_a_hello_hurts_nobody() {
    assert_withstood(Kind::HalfHello);
}

#[test]
fn handshakes_without_an_end_hurt_nobody() {
    assert_withstood(Kind::NoFinish);
}

#[test]
fn sessions_that_rest_hurt_nobody() {
    assert_withstood(Kind::Idle);
}

#[test]
fn slow_heads_by_tls_hurt_nobody() {
    assert_withstood(Kind::HalfHead);
}

#[test]
fn answers_by_tls_that_nobody_reads_hurt_nobody() {
    assert_withstood(Kind::Unread);
}

#[test]
fn changes_of_keys_hurt_nobody() {
    assert_withstood(Kind::KeyUpdates);
}
