//! Who the others are, what they said, and what they are told. Sans-IO but for the applications' controllers:
//! datagrams and time are arguments.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Circle, ClassSummary, Places, Setup, Summary, Times, Timestamp};
use tidegate_wire::{Counts, Key, Keys, Kind, MAX_DATAGRAM, PeerMessage, PeerSession, Rejected, Said, random_u64};

use super::Peer;
use super::list::{List, same};
use crate::app::App;
use crate::config::{self, PeerPlace};
use crate::names::{self, Named};

/// Who was not heard for so long may have been started anew.
const SILENT: Duration = Duration::from_secs(1);
/// What tells lists of classes apart is the FNV-1a hash of their names.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The exchange of one sentry with all others.
#[derive(Debug)]
pub(super) struct Exchange {
    keys: Keys,
    /// This process, among all of them.
    boot: u64,
    /// Where it is spoken to.
    own: SocketAddr,
    list: List,
    /// Everybody in the list, as far as it is known where they are.
    members: Vec<Member>,
    topics: Vec<Topic>,
    counts: Arc<Counts>,
    /// When the others are told next.
    due: Instant,
    /// When who echoes is told, too.
    asks: Instant,
}

/// Another sentry.
#[derive(Debug)]
struct Member {
    address: SocketAddr,
    /// What it was found by.
    name: Option<String>,
    session: PeerSession,
    heard: Option<Instant>,
    /// It is where this sentry listens.
    is_self: bool,
    /// What this sentry said itself came from there: it is this sentry, or somebody sends back what it says.
    echoes: bool,
}

impl Member {
    fn seems_self(&self) -> bool {
        self.is_self || self.echoes
    }
}

/// An application.
#[derive(Debug)]
struct Topic {
    app: Arc<App>,
    circle: Circle,
    /// Its list of classes, as of the last summary.
    classes: u64,
}

impl Exchange {
    pub(super) fn new(config: &config::Peers, own: SocketAddr, apps: Vec<Arc<App>>, counts: Arc<Counts>) -> Exchange {
        let topic = |app: Arc<App>| Topic { app, circle: Circle::default(), classes: 0 };
        let mut exchange = Exchange {
            keys: config.keys.clone(),
            boot: random_u64(),
            own,
            list: List::default(),
            members: Vec::new(),
            topics: apps.into_iter().map(topic).collect(),
            counts,
            due: Instant::now(),
            asks: Instant::now(),
        };
        exchange.configure(&config.sentries);
        exchange
    }

    /// These are the others from now on. Who was one of them already stays what it is.
    pub(super) fn configure(&mut self, sentries: &[PeerPlace]) {
        self.list.configure(sentries);
        self.follow();
    }

    /// The first of these is spoken with from now on, and all are heard.
    pub(super) fn change_keys(&mut self, keys: &Keys) {
        self.keys = keys.clone();
    }

    /// Names in the list lead elsewhere now.
    pub(super) fn find(&mut self, change: impl FnOnce(&mut HashMap<Named, Vec<names::Member>>)) {
        let before = self.list.found.clone();
        change(&mut self.list.found);
        if self.list.found != before {
            self.follow();
        }
    }

    /// The others are spoken to from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.expect();
        self.due = now;
    }

    /// What there is to look up.
    pub(super) fn wanted(&self) -> Vec<Named> {
        self.list.wanted()
    }

    /// When [`Exchange::tell`] is to be called.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// The others, as they are shown.
    pub(super) fn peers(&self, now: Instant) -> Vec<Peer> {
        let peer = |member: &Member| Peer {
            address: member.address,
            name: member.name.clone(),
            heard: member.heard.map(|at| now.saturating_duration_since(at)),
            is_self: member.seems_self(),
        };
        self.members.iter().map(peer).collect()
    }

    /// A datagram came.
    pub(super) fn hear(&mut self, now: Instant, datagram: &[u8], from: SocketAddr) {
        let judged = match PeerMessage::read(&self.keys, datagram) {
            Ok(message) if message.header.boot == self.boot => return self.meet_itself(from),
            Ok(message) => self.judge(now, &message, from),
            Err(rejected) => Err(rejected),
        };
        self.counts.count(&judged);
    }

    /// Every other is told of every application, and every controller of the others.
    pub(super) fn tell(&mut self, now: Instant, send: &mut impl FnMut(&[u8], SocketAddr)) {
        let is_asked = now >= self.asks;
        if is_asked {
            self.asks = now + SILENT;
        }
        for member in &mut self.members {
            if member.heard.is_some_and(|at| now.saturating_duration_since(at) > SILENT) {
                member.heard = None;
                member.session.forget();
            }
        }
        let key = self.keys.first();
        for topic in &mut self.topics {
            let summary = topic.app.engine(|core, now| {
                let summary = core.controller.summary(now);
                topic.classes = digest(core.controller.setup());
                core.controller.handle_peers(now, topic.circle.peers(now));
                summary
            });
            let said = said(summary);
            for member in self.members.iter_mut().filter(|member| !member.is_self) {
                if member.echoes && !is_asked {
                    continue;
                }
                let (header, nonce) = member.session.next(self.boot, Kind::Summary);
                let about = Some((topic.app.name(), topic.classes, said.clone()));
                write(&key, &PeerMessage { header, nonce, about }, member.address, send);
            }
        }
        let every = self.topics.iter().map(|topic| topic.circle.every()).max().unwrap_or(SILENT);
        self.due = now + every;
    }

    /// Every other is told that this sentry leaves.
    pub(super) fn leave(&mut self, send: &mut impl FnMut(&[u8], SocketAddr)) {
        let key = self.keys.first();
        for member in self.members.iter_mut().filter(|member| !member.is_self) {
            let (header, nonce) = member.session.next(self.boot, Kind::Farewell);
            write(&key, &PeerMessage { header, nonce, about: None }, member.address, send);
        }
    }

    /// What it said itself came from an address: its own, or somebody sent it back in another's name. So who was heard
    /// there of late is believed to be there, and who echoes is told something each second, as another would answer.
    fn meet_itself(&mut self, from: SocketAddr) {
        let member = self.members.iter_mut().find(|member| same(member.address, from));
        if let Some(member) = member.filter(|member| member.session.process().is_none()) {
            member.echoes = true;
        }
    }

    fn judge(&mut self, now: Instant, message: &PeerMessage<'_>, from: SocketAddr) -> Result<(), Rejected> {
        let process = message.header.boot;
        let known = self.members.iter().position(|member| same(member.address, from));
        let known = known.ok_or(Rejected::UnknownPeer)?;
        // What one says by two addresses it says once.
        let by_another = |(at, other): (usize, &Member)| at != known && other.session.process() == Some(process);
        if self.members.iter().enumerate().any(by_another) {
            return Err(Rejected::UnknownPeer);
        }
        let member = &mut self.members[known];
        let replaced = member.session.hear(message)?;
        (member.heard, member.echoes) = (Some(now), false);
        let Some((name, classes, said)) = &message.about else {
            member.heard = None;
            member.session.forget();
            self.forget(process);
            return Ok(());
        };
        replaced.into_iter().for_each(|process| self.forget(process));
        let topic = self.topics.iter_mut().find(|topic| topic.app.name() == *name && topic.classes == *classes);
        let topic = topic.ok_or(Rejected::OtherApplication)?;
        let at: Timestamp = topic.app.now();
        topic.circle.hear(at, process, summary(said.clone()));
        Ok(())
    }

    /// Where the others are may have changed.
    fn follow(&mut self) {
        let mut before = std::mem::take(&mut self.members);
        let was_alone = before.iter().all(Member::seems_self);
        for (address, name) in self.list.addresses(self.own) {
            self.members.push(match before.iter().position(|member| member.address == address) {
                Some(at) => Member { name, ..before.swap_remove(at) },
                None => {
                    let is_self = same(address, self.own);
                    Member { address, name, session: PeerSession::new(), heard: None, is_self, echoes: false }
                }
            });
        }
        before.iter().filter_map(|member| member.session.process()).for_each(|process| self.forget(process));
        if was_alone {
            self.expect();
        }
    }

    /// So many others are reckoned with, until it is known who is there.
    fn expect(&mut self) {
        let others = self.members.iter().filter(|member| !member.seems_self()).count();
        for topic in &mut self.topics {
            topic.circle = Circle::new(self.boot, topic.app.now(), others);
        }
    }

    /// A process is not there any more.
    fn forget(&mut self, process: u64) {
        self.topics.iter_mut().for_each(|topic| topic.circle.leave(process));
    }
}

fn write(key: &Key, message: &PeerMessage<'_>, to: SocketAddr, send: &mut impl FnMut(&[u8], SocketAddr)) {
    let mut buffer = [0; MAX_DATAGRAM];
    let length = message.write(key, &mut buffer);
    send(&buffer[..length], to);
}

/// What tells an application's list of classes from others.
fn digest(setup: &Setup) -> u64 {
    let bytes = setup.classes.iter().flat_map(|class| class.name.bytes().chain([0]));
    bytes.fold(FNV_BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// The engine's summary as it goes over the wire.
fn said(summary: Summary) -> Said {
    let Summary { in_service, completed, guaranteed, waiting, classes, places, times } = summary;
    Said {
        in_service,
        completed,
        guaranteed,
        waiting,
        places: places.map(|Places { now, most, beyond, is_known }| ([now, most, beyond], is_known)),
        classes: classes.into_iter().map(|class| [class.offered, class.needs]).collect(),
        times: times.into_iter().map(|times| [times.in_service, times.count, times.ln, times.square]).collect(),
    }
}

/// The same the other way.
fn summary(said: Said) -> Summary {
    let Said { in_service, completed, guaranteed, waiting, places, classes, times } = said;
    Summary {
        in_service,
        completed,
        guaranteed,
        waiting,
        places: places.map(|([now, most, beyond], is_known)| Places { now, most, beyond, is_known }),
        classes: classes.into_iter().map(|[offered, needs]| ClassSummary { offered, needs }).collect(),
        times: times
            .into_iter()
            .map(|[in_service, count, ln, square]| Times { in_service, count, ln, square })
            .collect(),
    }
}
