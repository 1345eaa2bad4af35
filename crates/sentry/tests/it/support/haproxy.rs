//! HAProxy's side of SPOP, by hand from its specification: a second reading of it beside the sentry's.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

// What a frame is.
pub const HELLO: u8 = 1;
pub const DISCONNECT: u8 = 2;
pub const NOTIFY: u8 = 3;
pub const AGENT_HELLO: u8 = 101;
pub const AGENT_DISCONNECT: u8 = 102;
pub const ACK: u8 = 103;

/// A connection on which HAProxy asks.
pub struct Haproxy(TcpStream);

/// What a sentry says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub kind: u8,
    /// Of which question.
    pub stream: u64,
    pub frame: u64,
    /// Names and values: of a list, or of variables.
    pub values: HashMap<String, String>,
}

impl Said {
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }
}

impl Haproxy {
    /// One that has greeted, and was answered.
    pub fn connect(to: SocketAddr) -> Haproxy {
        let mut haproxy = Haproxy::silent(to);
        haproxy.send(HELLO, (0, 0), &greeting(16_380, false));
        let said = haproxy.said().expect("an answer");
        assert_eq!(
            (said.kind, said.value("version"), said.value("max-frame-size")),
            (AGENT_HELLO, Some("2.0"), Some("16380"))
        );
        assert_eq!(said.value("capabilities"), Some("pipelining"));
        haproxy
    }

    /// One that has said nothing.
    pub fn silent(to: SocketAddr) -> Haproxy {
        let socket = TcpStream::connect(to).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        socket.set_nodelay(true).expect("no delay");
        Haproxy(socket)
    }

    pub fn send(&mut self, kind: u8, of: (u64, u64), payload: &[u8]) {
        self.send_flagged(kind, 1, of, payload);
    }

    pub fn send_flagged(&mut self, kind: u8, flags: u32, of: (u64, u64), payload: &[u8]) {
        let frame = [&[kind][..], &flags.to_be_bytes(), &number(of.0), &number(of.1), payload].concat();
        let length = (frame.len() as u32).to_be_bytes();
        self.send_raw(&[&length[..], &frame].concat());
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it reads");
    }

    /// Asks about a request, of which only that is said which differs from the usual.
    pub fn ask(&mut self, stream: u64, id: &str, fields: &[(&str, &str)]) {
        let of = |name: &str, usual| fields.iter().find(|(own, _)| *own == name).map_or(usual, |(_, value)| *value);
        let mut head = Vec::new();
        let others = fields.iter().filter(|(name, _)| !name.starts_with(':')).copied();
        for (name, value) in [("host", "shop.test")].into_iter().chain(others).chain([("", "")]) {
            head.extend([word(name), word(value)].concat());
        }
        let text = |name: &str, value: &str| [word(name), vec![8], word(value)].concat();
        let arguments = [
            text("id", id),
            text("method", of(":method", "GET")),
            text("path", of(":path", "/")),
            [word("headers"), vec![9], number(head.len() as u64), head].concat(),
            [&word("src")[..], &[6, 192, 0, 2, 7]].concat(),
        ];
        self.send(
            NOTIFY,
            (stream, 1),
            &[&word("tidegate")[..], &[arguments.len() as u8], &arguments.concat()].concat(),
        );
    }

    /// What the sentry says next; `None`: it closes.
    pub fn said(&mut self) -> Option<Said> {
        let mut length = [0; 4];
        if self.0.read(&mut length[..1]).expect("a byte, or the end") == 0 {
            return None;
        }
        self.0.read_exact(&mut length[1..]).expect("a length");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).expect("a frame");
        assert_eq!(&frame[1..5], [0, 0, 0, 1], "it is whole");
        let mut rest = &frame[5..];
        let mut said = Said { kind: frame[0], stream: take(&mut rest), frame: take(&mut rest), ..Said::default() };
        while !rest.is_empty() {
            if said.kind == ACK {
                assert_eq!(&rest[..3], [1, 3, 2], "a variable of the transaction");
                rest = &rest[3..];
            }
            let name = bytes(&mut rest);
            let (kind, after) = rest.split_first().expect("a value");
            rest = after;
            let value = match kind {
                3 => take(&mut rest).to_string(),
                8 => bytes(&mut rest),
                other => panic!("a value of type {other}"),
            };
            said.values.insert(name, value);
        }
        Some(said)
    }

    /// The answer to one question, which is the next that is said.
    pub fn answer(&mut self, stream: u64) -> Said {
        let said = self.said().expect("an answer");
        assert_eq!((said.kind, said.stream, said.frame), (ACK, stream, 1));
        said
    }

    /// It says that it ends, with this status, and closes.
    pub fn ends_with(mut self, status: &str) {
        let said = self.said().expect("it says why");
        assert_eq!((said.kind, said.value("status-code")), (AGENT_DISCONNECT, Some(status)), "{said:?}");
        assert_eq!(self.said(), None);
    }
}

/// How HAProxy begins.
pub fn greeting(largest: u64, is_check: bool) -> Vec<u8> {
    let check = [word("healthcheck"), vec![0x11]].concat();
    [
        [word("supported-versions"), vec![8], word("2.0")].concat(),
        [word("max-frame-size"), vec![3], number(largest)].concat(),
        [word("capabilities"), vec![8], word("pipelining,async")].concat(),
        if is_check { check } else { Vec::new() },
    ]
    .concat()
}

/// A whole number; section 3.1 of the specification.
pub fn number(value: u64) -> Vec<u8> {
    if value < 240 {
        return vec![value as u8];
    }
    let mut out = vec![(value & 15) as u8 + 240];
    let mut rest = (value - 240) / 16;
    while rest >= 128 {
        out.push((rest % 128) as u8 + 128);
        rest = (rest - 128) / 128;
    }
    out.push(rest as u8);
    out
}

pub fn word(text: &str) -> Vec<u8> {
    [number(text.len() as u64), text.as_bytes().to_vec()].concat()
}

fn take(rest: &mut &[u8]) -> u64 {
    let mut next = || {
        let (first, after) = rest.split_first().expect("a byte");
        *rest = after;
        u64::from(*first)
    };
    let mut value = next();
    let mut scale = 16;
    let mut goes_on = value >= 240;
    while goes_on {
        let byte = next();
        value += byte * scale;
        scale *= 128;
        goes_on = byte >= 128;
    }
    value
}

fn bytes(rest: &mut &[u8]) -> String {
    let length = take(rest) as usize;
    let (text, after) = rest.split_at(length);
    *rest = after;
    String::from_utf8_lossy(text).into_owned()
}
