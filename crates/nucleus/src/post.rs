//! Sending samples to the sentries, and hearing their challenges and commands.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use tidegate_wire::{Command, Keys, Kind, MAX_DATAGRAM, Message, Rejected, ReportWriter, Sender, random_u64};

use crate::names::Address;
use crate::sample::Sample;

/// All sentries.
#[derive(Debug)]
pub(crate) struct Post {
    keys: Keys,
    server: String,
    sentries: Vec<Sentry>,
    buffer: Box<[u8; MAX_DATAGRAM]>,
}

/// One sentry.
#[derive(Debug)]
struct Sentry {
    address: Address,
    sender: Sender,
    socket: Option<UdpSocket>,
}

impl Post {
    pub(crate) fn new(keys: Keys, server: String, to: &[String]) -> Post {
        // The same toward every sentry: one nucleus is one nucleus.
        let boot = random_u64();
        let sentry = |to: &String| Sentry { address: Address::new(to), sender: Sender::new(boot), socket: None };
        Post { keys, server, sentries: to.iter().map(sentry).collect(), buffer: Box::new([0; MAX_DATAGRAM]) }
    }

    /// The first of these is spoken with from now on, and all are heard.
    pub(crate) fn change_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// The name of its server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends a sample to every sentry. What cannot be sent is lost: the next one is newer. Of the connections as many
    /// are told as there is room for; how many, to every sentry.
    pub(crate) fn send(&mut self, sample: &Sample) -> usize {
        let (mut told, key) = (sample.connections.len(), self.keys.first());
        for sentry in &mut self.sentries {
            let mut writer = ReportWriter::new(&mut self.buffer, &self.server, &sample.gauges);
            sample.active.iter().for_each(|(name, count)| {
                // What does not fit is not told.
                writer.active(name, *count);
            });
            let fitting = sample.connections.iter().take_while(|connection| writer.connection(connection)).count();
            told = told.min(fitting);
            let header = sentry.sender.next(Kind::Report);
            let length = writer.finish(&key, &header);
            if let Some(socket) = sentry.socket() {
                let _ = socket.send(&self.buffer[..length]);
            }
        }
        told
    }

    /// Takes what came from the sentries: challenges are answered with the next report, commands are handed out, with
    /// the number of the sentry.
    pub(crate) fn hear(&mut self, mut command: impl FnMut(usize, Command)) {
        for (at, sentry) in self.sentries.iter_mut().enumerate() {
            sentry.hear(&self.keys, &self.server, &mut self.buffer, |it| command(at, it));
        }
    }

    /// What to wait at for the sentries.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.sentries.iter().filter_map(|sentry| sentry.socket.as_ref())
    }

    /// Tells every sentry that no reports follow.
    pub(crate) fn leave(&mut self) {
        let key = self.keys.first();
        for sentry in &mut self.sentries {
            let header = sentry.sender.next(Kind::Goodbye);
            let length = Message::write(&key, &header, &self.server, &mut self.buffer);
            if let Some(socket) = &sentry.socket {
                let _ = socket.send(&self.buffer[..length]);
            }
        }
    }

    /// Sentries that have answered.
    pub(crate) fn heard(&self) -> usize {
        self.sentries.iter().filter(|sentry| sentry.sender.was_heard()).count()
    }
}

impl Sentry {
    /// The socket to it, made when there is none, or when it is elsewhere now.
    fn socket(&mut self) -> Option<&UdpSocket> {
        if let Some(address) = self.address.changed(Instant::now(), self.sender.was_heard()) {
            self.socket = connect(address).ok();
        }
        self.socket.as_ref()
    }

    /// Takes the datagrams that came.
    fn hear(&mut self, keys: &Keys, server: &str, buffer: &mut [u8; MAX_DATAGRAM], mut command: impl FnMut(Command)) {
        let Some(socket) = &self.socket else { return };
        // A refused datagram shows as an error here: nobody listens there yet, and others may have come before.
        for _ in 0..16 {
            match socket.recv(&mut buffer[..]) {
                Ok(length) => {
                    // What is not ours, or not new, changes nothing.
                    let _: Result<(), Rejected> =
                        Message::read(keys, &buffer[..length]).and_then(|message| match message.header.kind {
                            Kind::Command => self.sender.obey(&message, server).map(&mut command),
                            _ => self.sender.hear(&message, server),
                        });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {}
            }
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    // Whom it is connected to is all it hears.
    socket.connect(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_wire::{Gauge, Header};

    use super::*;

    /// Nothing in these tests takes this long unless it is broken.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Over loopback a datagram is there when `send_to` returns, or a little later where the kernel is busy.
    fn until_something_came(post: &Post) {
        let deadline = Instant::now() + PATIENCE;
        let first = post.sockets().next().expect("a socket");
        while first.peek(&mut [0]).is_err() {
            assert!(Instant::now() < deadline, "nothing came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_sentry_hears_reports_and_its_challenge_is_answered() {
        let keys = Keys::derive(b"a secret of the tests");
        let sentry = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        sentry.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let to = sentry.local_addr().expect("an address").to_string();
        let mut post = Post::new(keys.clone(), "web".to_owned(), &[to, "127.0.0.1:1".to_owned()]);
        let mut sample = Sample::default();
        sample.gauges.set(Gauge::Cpu, 0.5);
        sample.active.push(("static".to_owned(), 3.0));
        post.send(&sample);
        let mut buffer = [0; 2000];
        let (length, from) = sentry.recv_from(&mut buffer).expect("a report");
        let message = Message::read(&keys, &buffer[..length]).expect("sound");
        assert_eq!((message.server, message.header.sequence, message.header.token), ("web", 1, 0));
        assert_eq!(message.report.expect("a report").gauges.get(Gauge::Cpu), Some(0.5));
        let mut challenge = [0; MAX_DATAGRAM];
        let first = message.header;
        let header = Header { kind: Kind::Challenge, token: 77, ..first };
        let length = Message::write(&keys.first(), &header, "web", &mut challenge);
        sentry.send_to(&challenge[..length], from).expect("sent");
        until_something_came(&post);
        post.hear(|_, command| panic!("a challenge is no command: {command:?}"));
        post.send(&sample);
        let length = sentry.recv(&mut buffer).expect("a report");
        assert_eq!(Message::read(&keys, &buffer[..length]).expect("sound").header.token, 77);
        assert_eq!(post.heard(), 1);
        let header = Header { kind: Kind::Command, sequence: 1, token: 77, ..first };
        let length = Message::write_command(&keys.first(), &header, "web", Command { cores: 3 }, &mut challenge);
        let mut commands = Vec::new();
        for _ in 0..2 {
            sentry.send_to(&challenge[..length], from).expect("sent");
            until_something_came(&post);
            post.hear(|sentry, command| commands.push((sentry, command.cores)));
        }
        assert_eq!(commands, [(0, 3)], "the second is a recording");
        post.leave();
        let length = sentry.recv(&mut buffer).expect("a goodbye");
        assert_eq!(Message::read(&keys, &buffer[..length]).expect("sound").header.kind, Kind::Goodbye);
    }
}
