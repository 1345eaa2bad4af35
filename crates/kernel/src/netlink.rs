//! The few messages of nf_tables that are sent while a policer runs.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::wire::{Received, Writer, find, find_text, find_u64, messages};

const SUBSYSTEM: u16 = 10;
const INET: u8 = 1;

const NEW_RULE: u16 = 6;
const GET_CHAIN: u16 = 4;
const GET_RULE: u16 = 7;
const DELETE_TABLE: u16 = 2;
const NEW_ELEMENT: u16 = 12;
const DELETE_ELEMENT: u16 = 14;
const GET_OBJECT: u16 = 19;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const REPLACE: u16 = 0x100;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;

const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The kernel's parts of an answer are no larger.
const BUFFER: usize = 64 * 1024;
/// An answer that takes longer does not come, seconds.
const PATIENCE: i64 = 2;

/// An open socket.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

/// A counter's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) packets: u64,
}

/// A token bucket, as a rule has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// Per minute: finer than per second, and tokens come as evenly.
    pub(crate) per_minute: u64,
    pub(crate) burst: u32,
}

impl Netlink {
    /// # Errors
    /// When the kernel has no netlink, or none for the filter.
    #[expect(unsafe_code, reason = "a netlink socket without a library")]
    pub(crate) fn open() -> io::Result<Netlink> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: it takes no pointers.
        let descriptor = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let patience = libc::timeval { tv_sec: PATIENCE, tv_usec: 0 };
        // SAFETY: the option's value is a `timeval` whose address and size are given; the kernel copies it.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const patience).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        match result {
            0 => Ok(Netlink { socket, buffer: vec![0; BUFFER], sequence: 0 }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Every chain of every table of the family: table and chain.
    pub(crate) fn chains(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut chains = Vec::new();
        self.dump(
            GET_CHAIN,
            |_| {},
            |body| {
                if let (Some(table), Some(chain)) = (find_text(body, 1), find_text(body, 3)) {
                    chains.push((table.to_owned(), chain.to_owned()));
                }
            },
        )?;
        Ok(chains)
    }

    /// The handle of a chain's first rule.
    pub(crate) fn first_rule(&mut self, table: &str, chain: &str) -> io::Result<Option<u64>> {
        let mut first = None;
        let of_chain = |writer: &mut Writer| {
            writer.text(1, table);
            writer.text(2, chain);
        };
        self.dump(GET_RULE, of_chain, |body| {
            // Kernels before 4.10 send the rules of all chains.
            if find_text(body, 1) == Some(table) && find_text(body, 2) == Some(chain) {
                first = first.or(find_u64(body, 3));
            }
        })?;
        Ok(first)
    }

    /// The counters of a table.
    pub(crate) fn counters(&mut self, table: &str, each: impl FnMut(Counter)) -> io::Result<()> {
        let mut each = each;
        let of_table = |writer: &mut Writer| {
            writer.text(1, table);
            // Counters only.
            writer.u32(3, 1);
        };
        self.dump(GET_OBJECT, of_table, |body| {
            let packets = find(body, 4).and_then(|data| find_u64(data, 2));
            if let (Some(name), Some(packets), true) = (find_text(body, 2), packets, find_text(body, 1) == Some(table))
            {
                each(Counter { name: name.to_owned(), packets });
            }
        })
    }

    /// Puts another limit in place of rules, all at once: of each chain the rule's handle, its limit, and the counter
    /// of what is dropped. The buckets are full then.
    pub(crate) fn replace_limits(&mut self, table: &str, rules: &[(String, u64, Limit, String)]) -> io::Result<()> {
        self.batch(|batch| {
            for (chain, handle, limit, counter) in rules {
                batch.add(NEW_RULE, REPLACE, |writer| {
                    writer.text(1, table);
                    writer.text(2, chain);
                    writer.u64(3, *handle);
                    writer.nested(4, |writer| drop_over(writer, *limit, counter));
                });
            }
        })
    }

    /// Puts ports into a set for so long, in place of whatever lease they have; `None`: takes them out.
    pub(crate) fn lease(&mut self, table: &str, set: &str, ports: &[u16], millis: Option<u64>) -> io::Result<()> {
        let delete =
            |batch: &mut Batch<'_>| batch.add(DELETE_ELEMENT, 0, |writer| elements(writer, table, set, ports, None));
        let add = |batch: &mut Batch<'_>| {
            if millis.is_some() {
                batch.add(NEW_ELEMENT, CREATE, |writer| elements(writer, table, set, ports, millis));
            }
        };
        let both = self.batch(|batch| {
            delete(batch);
            add(batch);
        });
        match both {
            // There is no lease to take out.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) && millis.is_some() => self.batch(add),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }

    /// Removes a table; none of that name is no error.
    pub(crate) fn delete_table(&mut self, table: &str) -> io::Result<()> {
        match self.batch(|batch| batch.add(DELETE_TABLE, 0, |writer| writer.text(1, table))) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }

    /// Sends messages as one transaction and waits until each is acknowledged.
    fn batch(&mut self, fill: impl FnOnce(&mut Batch<'_>)) -> io::Result<()> {
        let mut writer = Writer::default();
        let first = self.sequence + 1;
        writer.message(BATCH_BEGIN, REQUEST, first, 0, SUBSYSTEM, |_| {});
        let mut batch = Batch { writer: &mut writer, sequence: first };
        fill(&mut batch);
        let last = batch.sequence;
        writer.message(BATCH_END, REQUEST, last + 1, 0, SUBSYSTEM, |_| {});
        self.sequence = last + 1;
        self.send(writer.bytes())?;
        let (mut open, mut failure) = (last - first, None);
        while open > 0 {
            let received = self.receive()?;
            for message in messages(&self.buffer[..received]) {
                // An error of the whole batch answers its first or last message.
                let is_ours = (first..=last + 1).contains(&message.sequence) && message.kind == ERROR;
                if let (true, Some(result)) = (is_ours, result_of(&message)) {
                    let is_inside = (first + 1..=last).contains(&message.sequence);
                    open = if is_inside { open - 1 } else { 0 };
                    failure = failure.or(result.err());
                }
            }
            // After an error the kernel sends the others' as well, but not for what it did not reach.
            if failure.is_some() {
                break;
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn dump(&mut self, kind: u16, body: impl FnOnce(&mut Writer), mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.sequence += 1;
        let sequence = self.sequence;
        let mut writer = Writer::default();
        writer.message(SUBSYSTEM << 8 | kind, REQUEST | DUMP, sequence, INET, 0, body);
        self.send(writer.bytes())?;
        loop {
            let received = self.receive()?;
            for message in messages(&self.buffer[..received]).filter(|message| message.sequence == sequence) {
                match message.kind {
                    DONE => return Ok(()),
                    ERROR => return result_of(&message).unwrap_or(Ok(())),
                    // After the family's four bytes.
                    _ => each(message.body.get(4..).unwrap_or_default()),
                }
            }
        }
    }

    #[expect(unsafe_code, reason = "a netlink socket without a library")]
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the bytes are there for as long as they are borrowed.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    #[expect(unsafe_code, reason = "a netlink socket without a library")]
    fn receive(&mut self) -> io::Result<usize> {
        loop {
            let (at, length) = (self.buffer.as_mut_ptr(), self.buffer.len());
            // SAFETY: the kernel writes at most `length` bytes, which is how long the buffer is.
            let received = unsafe { libc::recv(self.socket.as_raw_fd(), at.cast(), length, 0) };
            match usize::try_from(received) {
                Ok(received) => return Ok(received),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
}

struct Batch<'w> {
    writer: &'w mut Writer,
    sequence: u32,
}

impl Batch<'_> {
    fn add(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Writer)) {
        self.sequence += 1;
        self.writer.message(SUBSYSTEM << 8 | kind, REQUEST | ACK | flags, self.sequence, INET, 0, body);
    }
}

/// `limit rate over ... counter name "..." drop`
fn drop_over(writer: &mut Writer, limit: Limit, counter: &str) {
    expression(writer, "limit", |data| {
        data.u64(1, limit.per_minute.max(1));
        data.u64(2, 60);
        data.u32(3, limit.burst);
        // Packets; beyond the rate.
        data.u32(4, 0);
        data.u32(5, 1);
    });
    expression(writer, "objref", |data| {
        // A counter.
        data.u32(1, 1);
        data.text(2, counter);
    });
    expression(writer, "immediate", |data| {
        // Into the register of verdicts: drop.
        data.u32(1, 0);
        data.nested(2, |data| data.nested(2, |verdict| verdict.u32(1, 0)));
    });
}

fn expression(writer: &mut Writer, name: &str, data: impl FnOnce(&mut Writer)) {
    writer.nested(1, |expression| {
        expression.text(1, name);
        expression.nested(2, data);
    });
}

fn elements(writer: &mut Writer, table: &str, set: &str, ports: &[u16], millis: Option<u64>) {
    writer.text(1, table);
    writer.text(2, set);
    writer.nested(3, |list| {
        for port in ports {
            list.nested(1, |element| {
                element.nested(1, |key| key.attribute(1, &port.to_be_bytes()));
                if let Some(millis) = millis {
                    element.u64(4, millis);
                }
            });
        }
    });
}

/// What an acknowledgement says.
fn result_of(message: &Received<'_>) -> Option<io::Result<()>> {
    let code = i32::from_ne_bytes(message.body.get(..4)?.try_into().ok()?);
    Some(if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::attributes;

    #[test]
    fn a_rule_has_its_limit_counter_and_verdict() {
        let mut writer = Writer::default();
        drop_over(&mut writer, Limit { per_minute: 600, burst: 20 }, "refused_1");
        let names: Vec<_> = attributes(writer.bytes()).filter_map(|(_, value)| find_text(value, 1)).collect();
        assert_eq!(names, ["limit", "objref", "immediate"]);
        let limit = find(writer.bytes(), 1).and_then(|limit| find(limit, 2)).expect("its data");
        assert_eq!((find_u64(limit, 1), find_u64(limit, 2)), (Some(600), Some(60)));
    }
}
