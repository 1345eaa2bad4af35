//! Name resolution for sentries, on a separate thread, because a name server that does not answer must not
//! keep reports from the other sentries.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A sentry that has not answered is looked up again after this long: its name may have another address now.
const UNHEARD: Duration = Duration::from_secs(10);
/// One that has answered may have moved; reports are answered with nothing, so nobody would notice.
const HEARD: Duration = Duration::from_secs(60);

/// A name with a port, and the address in use.
#[derive(Debug)]
pub(crate) struct Address {
    name: String,
    found: Option<SocketAddr>,
    asked: Option<Instant>,
    look_up: Option<JoinHandle<io::Result<Vec<SocketAddr>>>>,
    /// How often an address was chosen: of several the next one each time, until the sentry answers.
    tries: usize,
}

impl Address {
    /// The address of `name`, `host:port`.
    pub(crate) fn new(name: &str) -> Address {
        Address { name: name.to_owned(), found: None, asked: None, look_up: None, tries: 0 }
    }

    /// An address to connect to, when that is due: the first one, another one, or the same once more while nobody was
    /// heard from there.
    pub(crate) fn changed(&mut self, now: Instant, was_heard: bool) -> Option<SocketAddr> {
        let pause = if was_heard { HEARD } else { UNHEARD };
        let is_due = self.asked.is_none_or(|at| now.saturating_duration_since(at) >= pause);
        if is_due && self.look_up.is_none() {
            self.asked = Some(now);
            if let Ok(address) = self.name.parse() {
                return self.choose(&[address], was_heard);
            }
            let name = self.name.clone();
            // Without a thread it is tried again when it is due again.
            self.look_up = thread::Builder::new()
                .name("name".to_owned())
                .spawn(move || Ok(name.to_socket_addrs()?.collect()))
                .ok();
        }
        let answer = self.look_up.take_if(|look_up| look_up.is_finished())?.join();
        // A name that is not known now was known before, or will be later.
        self.choose(&answer.ok()?.ok()?, was_heard)
    }

    fn choose(&mut self, addresses: &[SocketAddr], was_heard: bool) -> Option<SocketAddr> {
        if was_heard && self.found.is_some_and(|found| addresses.contains(&found)) {
            return None;
        }
        let chosen = *addresses.get(self.tries.checked_rem(addresses.len())?)?;
        self.tries = self.tries.wrapping_add(1);
        self.found = Some(chosen);
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_is_one_at_once_and_again_until_somebody_answers() {
        let (mut address, start) = (Address::new("127.0.0.1:9901"), Instant::now());
        let expected = Some(at("127.0.0.1:9901"));
        assert_eq!(address.changed(start, false), expected);
        assert_eq!(address.changed(start + Duration::from_secs(9), false), None, "not due");
        assert_eq!(address.changed(start + Duration::from_secs(10), false), expected);
        assert_eq!(address.changed(start + Duration::from_secs(100), true), None, "it is where it was");
    }

    #[test]
    fn a_name_is_looked_up_aside() {
        let (mut address, start) = (Address::new("localhost:9901"), Instant::now());
        let deadline = start + Duration::from_secs(60);
        let found = loop {
            // Time stands still for it, so it is asked once.
            if let Some(found) = address.changed(start, false) {
                break found;
            }
            assert!(Instant::now() < deadline, "nobody knows localhost");
            thread::yield_now();
        };
        assert!(found.ip().is_loopback() && found.port() == 9901, "{found}");
    }

    #[test]
    fn of_several_addresses_another_is_tried_until_one_answers_and_a_move_is_followed() {
        let mut address = Address::new("sentry:1");
        let (one, two, three) = (at("10.0.0.1:1"), at("10.0.0.2:1"), at("10.0.0.3:1"));
        assert_eq!(address.choose(&[one, two], false), Some(one));
        assert_eq!(address.choose(&[one, two], false), Some(two));
        assert_eq!(address.choose(&[one, two], true), None, "it answered");
        assert_eq!(address.choose(&[three], true), Some(three), "it moved");
        assert_eq!(address.choose(&[], true), None);
    }
}
