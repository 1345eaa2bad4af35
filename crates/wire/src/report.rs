//! The inside of a datagram. Reading borrows from the datagram and allocates nothing.
//!
//! ```text
//! name:       length:u8 bytes
//! gauges:     count:u8 (code:u8 value:f32)*
//! active:     count:u8 (name value:f32)*                    requests in service by request type
//! connections: count:u8 (family:u8 address port:u16 cpu_ns:u64)*
//! ```
//!
//! A command has, after the name, `cores:u16`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::datagram::{HEADER, Header, Kind, MAC, open, seal};
use crate::gauge::{Gauge, Gauges};
use crate::key::{Key, Keys};
use crate::rejected::Rejected;
use crate::{MAX_DATAGRAM, MAX_NAME};

/// A datagram that was opened and makes sense.
#[derive(Clone, Copy, Debug)]
pub struct Message<'d> {
    /// The header with the sender's session.
    pub header: Header,
    /// The server it is about.
    pub server: &'d str,
    /// What it says, if it is a report.
    pub report: Option<Report<'d>>,
    /// What is to be done, if it is a command.
    pub command: Option<Command>,
}

/// How a sentry wants a server's cores divided. A wish, not a step: taken twice it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Cores that the application's software is to have to itself; the data service keeps the others.
    pub cores: u16,
}

/// How a server is doing.
#[derive(Clone, Copy, Debug)]
pub struct Report<'d> {
    /// The measured values, by gauge.
    pub gauges: Gauges,
    rest: Rest<'d>,
}

/// The lists of a report.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'d> {
    active: Reader<'d>,
    actives: u8,
    connections: Reader<'d>,
    connection_count: u8,
}

/// Requests in service of one type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Active<'d> {
    /// Name of the request type.
    pub request_type: &'d str,
    /// Number of active requests of the type.
    pub count: f64,
}

/// A connection to the server that has a process of its own there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The other end: a sentry's.
    pub peer: SocketAddr,
    /// Processor time that its process has used since it started, nanoseconds.
    pub cpu_ns: u64,
}

impl<'d> Message<'d> {
    /// Opens a datagram and reads it.
    ///
    /// # Errors
    /// Why it must be ignored.
    pub fn read(keys: &Keys, datagram: &'d [u8]) -> Result<Message<'d>, Rejected> {
        Message::open(keys, datagram).map(|(message, _)| message)
    }

    /// Opens a datagram and reads it; with the key that it was sealed with, and that its answer is to be sealed with.
    ///
    /// # Errors
    /// Why it must be ignored.
    pub fn open(keys: &Keys, datagram: &'d [u8]) -> Result<(Message<'d>, Key), Rejected> {
        let (header, body, key) = open(keys, datagram)?;
        let mut reader = Reader(body);
        let parsed = (|| {
            let server = reader.name()?;
            let mut message = Message { header, server, report: None, command: None };
            match header.kind {
                Kind::Report => message.report = Some(Report::read(&mut reader)?),
                Kind::Command => message.command = Some(Command { cores: u16::from_le_bytes(reader.array()?) }),
                Kind::Challenge | Kind::Goodbye => {}
                Kind::Summary | Kind::Farewell => return None,
            }
            reader.0.is_empty().then_some(message)
        })();
        Ok((parsed.ok_or(Rejected::Malformed)?, key))
    }

    /// Writes a datagram that only names a server: a challenge or a goodbye. Returns its length.
    pub fn write(key: &Key, header: &Header, server: &str, buffer: &mut [u8; MAX_DATAGRAM]) -> usize {
        Message::write_with(key, header, server, &[], buffer)
    }

    /// Writes a command. Returns the datagram's length.
    pub fn write_command(
        key: &Key,
        header: &Header,
        server: &str,
        command: Command,
        buffer: &mut [u8; MAX_DATAGRAM],
    ) -> usize {
        Message::write_with(key, header, server, &command.cores.to_le_bytes(), buffer)
    }

    fn write_with(key: &Key, header: &Header, server: &str, rest: &[u8], buffer: &mut [u8; MAX_DATAGRAM]) -> usize {
        let mut writer = Writer { buffer, at: HEADER };
        writer.name(server);
        writer.put(rest);
        let body = writer.at - HEADER;
        seal(key, header, buffer, body)
    }
}

impl<'d> Report<'d> {
    fn read(reader: &mut Reader<'d>) -> Option<Report<'d>> {
        let mut gauges = Gauges::default();
        for _ in 0..reader.u8()? {
            let (code, value) = (reader.u8()?, reader.gauge()?);
            if let Some(gauge) = Gauge::of(code) {
                gauges.set(gauge, f64::from(value));
            }
        }
        let actives = reader.u8()?;
        let active = *reader;
        for _ in 0..actives {
            reader.name()?;
            reader.gauge()?;
        }
        let connection_count = reader.u8()?;
        let connections = *reader;
        for _ in 0..connection_count {
            reader.connection()?;
        }
        Some(Report { gauges, rest: Rest { active, actives, connections, connection_count } })
    }

    /// Requests in service by request type, where the server tells.
    pub fn active(&self) -> impl Iterator<Item = Active<'d>> + use<'d> {
        let mut reader = self.rest.active;
        (0..self.rest.actives)
            .map_while(move |_| Some(Active { request_type: reader.name()?, count: reader.gauge()?.into() }))
    }

    /// Some of the connections to the server that have a process of their own there.
    pub fn connections(&self) -> impl Iterator<Item = Connection> + use<'d> {
        let mut reader = self.rest.connections;
        (0..self.rest.connection_count).map_while(move |_| reader.connection())
    }
}

/// Writes a report: [`ReportWriter::new`], then types, then connections as long as they fit, then
/// [`ReportWriter::finish`].
#[derive(Debug)]
pub struct ReportWriter<'b> {
    writer: Writer<'b>,
    /// Where the count of the list being written stands.
    count_at: usize,
    connections: bool,
}

impl<'b> ReportWriter<'b> {
    /// Begins a report. A name longer than [`MAX_NAME`] bytes is cut.
    pub fn new(buffer: &'b mut [u8; MAX_DATAGRAM], server: &str, gauges: &Gauges) -> Self {
        let mut writer = Writer { buffer, at: HEADER };
        writer.name(server);
        writer.put(&[gauges.iter().count() as u8]);
        for (gauge, _) in gauges.iter() {
            writer.put(&[gauge.code()]);
            writer.put(&gauges.raw(gauge).to_le_bytes());
        }
        let count_at = writer.at;
        writer.put(&[0]);
        ReportWriter { writer, count_at, connections: false }
    }

    /// Adds requests in service of one type. `false` when there is no room for it, or connections were added before.
    pub fn active(&mut self, request_type: &str, count: f64) -> bool {
        let name = cut(request_type);
        let count = count as f32;
        // The count of connections comes after.
        if self.connections || !self.fits(1 + name.len() + 4 + 1) || !(count >= 0.0 && count.is_finite()) {
            return false;
        }
        self.writer.name(name);
        self.writer.put(&count.to_le_bytes());
        self.writer.buffer[self.count_at] += 1;
        true
    }

    /// Adds a connection. `false` when there is no room for it.
    pub fn connection(&mut self, connection: &Connection) -> bool {
        self.begin_connections();
        if !self.fits(1 + 16 + 2 + 8) {
            return false;
        }
        match connection.peer.ip().to_canonical() {
            IpAddr::V4(ip) => {
                self.writer.put(&[4]);
                self.writer.put(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.writer.put(&[6]);
                self.writer.put(&ip.octets());
            }
        }
        self.writer.put(&connection.peer.port().to_le_bytes());
        self.writer.put(&connection.cpu_ns.to_le_bytes());
        self.writer.buffer[self.count_at] += 1;
        true
    }

    /// Seals the report. Returns the datagram's length.
    pub fn finish(mut self, key: &Key, header: &Header) -> usize {
        self.begin_connections();
        let body = self.writer.at - HEADER;
        seal(key, header, self.writer.buffer, body)
    }

    fn begin_connections(&mut self) {
        if !self.connections {
            self.connections = true;
            self.count_at = self.writer.at;
            self.writer.put(&[0]);
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.writer.at + bytes + MAC <= MAX_DATAGRAM && self.writer.buffer[self.count_at] < u8::MAX
    }
}

/// Writes a body.
#[derive(Debug)]
pub(crate) struct Writer<'b> {
    pub(crate) buffer: &'b mut [u8; MAX_DATAGRAM],
    pub(crate) at: usize,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub(crate) fn name(&mut self, name: &str) {
        let name = cut(name);
        self.put(&[name.len() as u8]);
        self.put(name.as_bytes());
    }
}

/// The name, or the part of it that is not too long.
fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME)]
}

/// Reads a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'d>(pub(crate) &'d [u8]);

impl<'d> Reader<'d> {
    fn take(&mut self, bytes: usize) -> Option<&'d [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    /// 0 or more, and a number.
    pub(crate) fn gauge(&mut self) -> Option<f32> {
        let value = f32::from_le_bytes(self.array()?);
        (value >= 0.0 && value.is_finite()).then_some(value)
    }

    pub(crate) fn name(&mut self) -> Option<&'d str> {
        let length = usize::from(self.u8()?);
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        (1..=MAX_NAME).contains(&length).then_some(text)
    }

    fn connection(&mut self) -> Option<Connection> {
        let ip = match self.u8()? {
            4 => IpAddr::V4(Ipv4Addr::from(self.array::<4>()?)),
            6 => IpAddr::V6(Ipv6Addr::from(self.array::<16>()?)),
            _ => return None,
        };
        let port = u16::from_le_bytes(self.array()?);
        let cpu_ns = u64::from_le_bytes(self.array()?);
        Some(Connection { peer: SocketAddr::new(ip, port), cpu_ns })
    }
}

impl From<Gauges> for Report<'_> {
    /// A report of gauges only.
    fn from(gauges: Gauges) -> Self {
        let none = Reader(&[]);
        Report { gauges, rest: Rest { active: none, actives: 0, connections: none, connection_count: 0 } }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> Keys {
        Keys::derive(b"a secret of the tests")
    }

    const HEADER: Header = Header { kind: Kind::Report, boot: 1, sequence: 2, token: 3 };

    fn connection(port: u16) -> Connection {
        let ip: IpAddr = if port.is_multiple_of(2) { [10, 0, 0, 1].into() } else { Ipv6Addr::LOCALHOST.into() };
        Connection { peer: SocketAddr::new(ip, port), cpu_ns: u64::from(port) << 40 }
    }

    #[test]
    fn a_report_comes_back_as_it_was() {
        let mut gauges = Gauges::default();
        gauges.set(Gauge::QueueingDelay, 0.25);
        gauges.set(Gauge::Cores, 8.0);
        let mut buffer = [0; MAX_DATAGRAM];
        let mut writer = ReportWriter::new(&mut buffer, "web-1", &gauges);
        assert!(writer.active("static", 3.0) && writer.active("dynamic", 1.5));
        let connections: Vec<_> = (1..9).map(connection).collect();
        connections.iter().for_each(|connection| assert!(writer.connection(connection)));
        assert!(!writer.active("late", 1.0), "the lists come in order");
        let length = writer.finish(&keys().first(), &HEADER);
        let message = Message::read(&keys(), &buffer[..length]).expect("sound");
        assert_eq!((message.header, message.server), (HEADER, "web-1"));
        let report = message.report.expect("a report");
        assert_eq!(report.gauges, gauges);
        let active: Vec<_> = report.active().map(|a| (a.request_type, a.count)).collect();
        assert_eq!(active, [("static", 3.0), ("dynamic", 1.5)]);
        assert_eq!(report.connections().collect::<Vec<_>>(), connections);
    }

    #[test]
    fn a_full_datagram_takes_no_more_and_is_sound() {
        let mut gauges = Gauges::default();
        Gauge::ALL.iter().for_each(|&gauge| gauges.set(gauge, 1.0));
        let mut buffer = [0; MAX_DATAGRAM];
        let mut writer = ReportWriter::new(&mut buffer, &"n".repeat(500), &gauges);
        let types = (0..1000).take_while(|_| writer.active(&"t".repeat(40), 1.0)).count();
        let connections = (0..1000).take_while(|&port| writer.connection(&connection(port))).count();
        let length = writer.finish(&keys().first(), &HEADER);
        assert!(length <= MAX_DATAGRAM);
        let message = Message::read(&keys(), &buffer[..length]).expect("sound");
        assert_eq!(message.server.len(), MAX_NAME);
        let report = message.report.expect("a report");
        assert_eq!((report.active().count(), report.connections().count()), (types, connections));
        assert!(types > 10);
    }

    #[test]
    fn an_unknown_gauge_is_skipped() {
        let body: Vec<u8> = [&[1, b's', 2, 250][..], &1f32.to_le_bytes(), &[6], &2f32.to_le_bytes(), &[0, 0]].concat();
        let message = sealed(&body);
        let report = Message::read(&keys(), &message).expect("sound").report.expect("a report");
        assert_eq!(report.gauges.iter().collect::<Vec<_>>(), [(Gauge::Cpu, 2.0)]);
    }

    #[test]
    fn authentic_nonsense_is_malformed() {
        let nan = [&[1, b's', 1, 6][..], &f32::NAN.to_le_bytes(), &[0, 0]].concat();
        let bodies: [&[u8]; 6] =
            [b"", &[0, 0, 0, 0], &[1, 0xff, 0, 0, 0], &[1, b's', 0, 0], &nan, &[1, b's', 0, 0, 0, 7]];
        for body in bodies {
            assert_eq!(Message::read(&keys(), &sealed(body)).err(), Some(Rejected::Malformed), "{body:?}");
        }
    }

    #[test]
    fn a_command_comes_back_as_it_was_and_is_no_longer_or_shorter() {
        let header = Header { kind: Kind::Command, ..HEADER };
        let mut buffer = [0; MAX_DATAGRAM];
        let length = Message::write_command(&keys().first(), &header, "db-1", Command { cores: 513 }, &mut buffer);
        let message = Message::read(&keys(), &buffer[..length]).expect("sound");
        assert_eq!((message.header, message.server), (header, "db-1"));
        assert_eq!(message.command, Some(Command { cores: 513 }));
        assert!(message.report.is_none());
        for rest in [&b""[..], b"1", b"123"] {
            let length = Message::write_with(&keys().first(), &header, "db-1", rest, &mut buffer);
            assert_eq!(Message::read(&keys(), &buffer[..length]).err(), Some(Rejected::Malformed), "{rest:?}");
        }
    }

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut buffer = [0; MAX_DATAGRAM];
        buffer[super::HEADER..super::HEADER + body.len()].copy_from_slice(body);
        let length = seal(&keys().first(), &HEADER, &mut buffer, body.len());
        buffer[..length].to_vec()
    }

    proptest! {
        /// Whoever has the key cannot make the reader panic, or read beyond what it counted.
        #[test]
        fn any_authentic_body_does_no_harm(body in prop::collection::vec(any::<u8>(), 0..1300)) {
            if let Ok(message) = Message::read(&keys(), &sealed(&body)) && let Some(report) = message.report {
                prop_assert!(report.active().count() <= 255 && report.connections().count() <= 255);
            }
        }

        #[test]
        fn gauges_come_back(values in prop::collection::vec((0..Gauge::ALL.len(), 0.0f64..1e12), 0..40), name in "[a-z:.0-9]{1,60}") {
            let mut gauges = Gauges::default();
            values.iter().for_each(|&(at, value)| gauges.set(Gauge::ALL[at], value));
            let mut buffer = [0; MAX_DATAGRAM];
            let length = ReportWriter::new(&mut buffer, &name, &gauges).finish(&keys().first(), &HEADER);
            let message = Message::read(&keys(), &buffer[..length]).expect("sound");
            prop_assert_eq!(message.server, name);
            prop_assert_eq!(message.report.expect("a report").gauges, gauges);
        }
    }
}
