//! Attacks by HTTP/2 from many connections at once, each kept up for as long as honest clients of HTTP/2 are watched:
//! whoever is closed comes again. The sentry has 256 MiB.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;

use crate::hostile::{CLIENTS, Limited, Setup, as_many_as, withstand};
use crate::http2::{GET, PREFACE, frame};
use crate::support::PATIENCE;
use crate::support::hostile::{Honest, Tally, connect_from, hostile_address};

/// Connections of an attack, unless `TIDEGATE_HOSTILE` says how many: of one on memory, and of one on the processor,
/// which sends as fast as it can. How many of the latter are borne depends on the machine, on which other tests run.
const MANY: usize = 1000;
const FLOOD: usize = 40;

/// Streams that the sentry allows on one connection.
const STREAMS: u32 = 100;

/// Connections that an attack opens at most, closed ones included, for each that it has.
const AGAIN: usize = 100;

/// What each connection of an attack does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Asks, and resets at once (CVE-2023-44487).
    RapidReset,
    /// Asks, and makes the sentry reset (CVE-2025-8671).
    MadeYouReset,
    /// Sends a head without an end.
    Continuations,
    /// One large field, and then references to it, one byte each.
    References,
    /// A head of many small parts of a cookie, and never room for an answer (CVE-2026-49975).
    Crumbs,
    /// Asks, and gives the answer one byte of room at a time.
    ZeroWindow,
    /// DATA without data.
    EmptyData,
    Pings,
    Settings,
    /// Asks for what is large, gives all the room there is, and does not read.
    Unread,
    /// Begins bodies, and does not go on.
    Bodies,
    /// Speaks HTTP/2, and asks for nothing.
    Idle,
}

impl Kind {
    /// Settings that the connection begins with.
    fn settings(self) -> Vec<u8> {
        let window = |size: u32| [&4_u16.to_be_bytes()[..], &size.to_be_bytes()].concat();
        match self {
            Kind::Crumbs | Kind::ZeroWindow => frame(4, 0, 0, &window(0)),
            Kind::Unread => {
                [frame(4, 0, 0, &window(0x7fff_ffff)), frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes())].concat()
            }
            _ => frame(4, 0, 0, &[]),
        }
    }

    /// What it sends next; `turn` counts from 0. Empty: it has done its worst.
    fn frames(self, turn: u32) -> Vec<u8> {
        let stream = 2 * turn + 1;
        let ask = |flags, more: &[u8]| frame(1, flags, stream, &[HONEST, more].concat());
        match self {
            Kind::RapidReset => [ask(5, &[]), frame(3, 0, stream, &8_u32.to_be_bytes())].concat(),
            Kind::MadeYouReset => [ask(4, &[]), frame(8, 0, stream, &0x7fff_ffff_u32.to_be_bytes())].concat(),
            Kind::Continuations if turn == 0 => frame(1, 1, 1, GET),
            Kind::Continuations => frame(9, 0, 1, &[&[0, 1, b'x', 100][..], &[b'y'; 100]].concat()),
            Kind::References if turn == 0 => {
                let field = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'y'; 4000]].concat();
                frame(1, 5, 1, &[HONEST, &field].concat())
            }
            Kind::References => ask(5, &[0xbe; 8000]),
            // Its own part of the cookie, once; then seventy references to it: 14 kB for 90 bytes.
            Kind::Crumbs if turn < STREAMS => {
                let field = [&[0x60, 0x7f, 0x21][..], &[b'c'; 160]].concat();
                ask(5, &[if turn == 0 { &field[..] } else { &[] }, &[0xbe; 70]].concat())
            }
            Kind::ZeroWindow if turn < STREAMS => ask(5, &[]),
            Kind::ZeroWindow => frame(8, 0, 2 * (turn % STREAMS) + 1, &1_u32.to_be_bytes()),
            Kind::EmptyData if turn == 0 => ask(4, &[]),
            Kind::EmptyData => frame(0, 0, 1, &[]).repeat(50),
            Kind::Pings => frame(6, 0, 0, &[0; 8]).repeat(50),
            Kind::Settings => frame(4, 0, 0, &[]).repeat(50),
            Kind::Unread if turn < STREAMS => frame(1, 5, stream, LARGE),
            Kind::Bodies if turn < STREAMS => [frame(1, 4, stream, POST), frame(0, 0, stream, &[b'x'; 5000])].concat(),
            Kind::Crumbs | Kind::Unread | Kind::Bodies | Kind::Idle => Vec::new(),
        }
    }

    /// Whether it takes processor time rather than memory.
    fn is_flood(self) -> bool {
        matches!(self, Kind::RapidReset | Kind::MadeYouReset | Kind::EmptyData | Kind::Pings | Kind::Settings)
    }

    fn reads(self) -> bool {
        self != Kind::Unread
    }
}

/// `GET /honest`, to `a`.
const HONEST: &[u8] = b"\x82\x86\x04\x07/honest\x01\x01a";
/// The same of what is large.
const LARGE: &[u8] = b"\x82\x86\x04\x0d/honest/large\x01\x01a";
/// `POST /`, to `a`, with more to come than is sent.
const POST: &[u8] = b"\x83\x86\x84\x01\x01a\x0f\x0d\x0599999";

/// One connection of an attack.
struct Hostile {
    io: TcpStream,
    pending: Vec<u8>,
    turn: u32,
}

impl Hostile {
    fn connect(kind: Kind, number: usize, address: SocketAddr) -> Option<Hostile> {
        let io = connect_from(hostile_address(number), address).ok()?;
        io.set_nonblocking(true).ok()?;
        Some(Hostile { io, pending: [PREFACE, &kind.settings()].concat(), turn: 0 })
    }

    /// Sends and reads what can be without a wait: whether it got on; `None`: it was closed.
    fn get_on(&mut self, kind: Kind) -> Option<bool> {
        let mut got_on = false;
        if kind.reads() {
            let mut part = [0; 16_384];
            match self.io.read(&mut part) {
                Ok(0) => return None,
                Ok(_) => got_on = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        if self.pending.is_empty() {
            self.pending = kind.frames(self.turn);
            self.turn += 1;
        }
        if self.pending.is_empty() {
            return Some(got_on);
        }
        match self.io.write(&self.pending) {
            Ok(sent) => {
                self.pending.drain(..sent);
                Some(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(got_on),
            Err(_) => None,
        }
    }
}

/// An attack that goes on in a thread of its own until it is dropped.
struct Attack {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Attack {
    /// All have connected, and sent something, when this returns.
    fn start(kind: Kind, address: SocketAddr, count: usize) -> Attack {
        let mut all: Vec<_> = (0..count).map(|number| Hostile::connect(kind, number, address)).collect();
        assert!(all.iter().flatten().count() > count / 2, "{kind:?}: most of {count} connect");
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = is_over.clone();
        let go_on = move || {
            let mut left = AGAIN * count;
            while !stop.load(Ordering::SeqCst) {
                let mut got_on = false;
                for (number, slot) in all.iter_mut().enumerate() {
                    match slot.as_mut().map(|hostile| hostile.get_on(kind)) {
                        Some(Some(more)) => got_on |= more,
                        _ if left > 0 => {
                            left -= 1;
                            *slot = Hostile::connect(kind, number, address);
                        }
                        _ => *slot = None,
                    }
                }
                if !got_on {
                    thread::park_timeout(Duration::from_millis(1));
                }
            }
        };
        Attack { is_over, thread: Some(thread::spawn(go_on)) }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Honest clients of HTTP/2: ten requests at once on a connection, then a new one.
fn honest(address: SocketAddr) -> Honest {
    Honest::start_with(CLIENTS, move |own, tally| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(ask_ten_times(own, address, tally));
    })
}

async fn ask_ten_times(own: IpAddr, address: SocketAddr, tally: &Tally) {
    let connected = connect_from(own, address).and_then(|io| {
        io.set_nonblocking(true)?;
        tokio::net::TcpStream::from_std(io)
    });
    let Ok(io) = connected else {
        tally.note(false);
        return;
    };
    let Ok((sender, connection)) = h2::client::handshake(io).await else {
        tally.note(false);
        return;
    };
    let driven = tokio::spawn(async move { drop(connection.await) });
    let answers: Vec<_> = (0..10).map(|_| tokio::spawn(ask(sender.clone()))).collect();
    for answer in answers {
        tally.note(answer.await.unwrap_or(false));
    }
    driven.abort();
}

/// Whether a request was answered well, and in full.
async fn ask(sender: SendRequest<Bytes>) -> bool {
    let whole = async {
        let request = Request::builder().uri("http://test/honest").body(()).expect("a request");
        let (answer, _) = sender.ready().await.ok()?.send_request(request, true).ok()?;
        let answer = answer.await.ok()?;
        let is_good = answer.status() == 200;
        let (mut body, mut length) = (answer.into_body(), 0);
        while let Some(data) = body.data().await {
            length += data.ok()?.len();
        }
        Some(is_good && length == 100)
    };
    tokio::time::timeout(PATIENCE, whole).await.is_ok_and(|good| good == Some(true))
}

fn assert_withstood(kind: Kind) {
    let many = as_many_as(if kind.is_flood() { FLOOD } else { MANY });
    let start = |address| honest(address);
    // A body is read only where its request might be admitted.
    let setup = Setup { refuses: kind != Kind::Bodies, ..Setup::default() };
    let attack = |sentry: &Limited| Attack::start(kind, sentry.address, many);
    withstand(&format!("{kind:?}"), setup, |sentry| start(sentry.address), attack);
}

#[test]
fn rapid_resets_hurt_nobody() {
    assert_withstood(Kind::RapidReset);
}

#[test]
fn resets_that_the_sentry_is_made_to_send_hurt_nobody() {
    assert_withstood(Kind::MadeYouReset);
}

#[test]
fn heads_without_an_end_hurt_nobody() {
    assert_withstood(Kind::Continuations);
}

#[test]
fn references_to_a_large_field_hurt_nobody() {
    assert_withstood(Kind::References);
}

#[test]
fn crumbs_of_cookies_hurt_nobody() {
    assert_withstood(Kind::Crumbs);
}

#[test]
fn windows_that_stay_closed_hurt_nobody() {
    assert_withstood(Kind::ZeroWindow);
}

#[test]
fn empty_data_hurts_nobody() {
    assert_withstood(Kind::EmptyData);
}

#[test]
fn pings_hurt_nobody() {
    assert_withstood(Kind::Pings);
}

#[test]
fn settings_hurt_nobody() {
    assert_withstood(Kind::Settings);
}

#[test]
fn answers_that_nobody_reads_hurt_nobody() {
    assert_withstood(Kind::Unread);
}

#[test]
fn bodies_without_an_end_hurt_nobody() {
    assert_withstood(Kind::Bodies);
}

#[test]
fn idle_connections_of_http2_hurt_nobody() {
    assert_withstood(Kind::Idle);
}
