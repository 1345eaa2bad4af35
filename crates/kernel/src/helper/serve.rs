//! The helper's side: a thread for each policer, and the tables that they have.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::protocol::{self, Answer, Ask, Wanted};
use crate::policer::SynPolicer;

/// Policers at one time: each is one application's, of a process or of its successor.
const MOST: usize = 1000;

/// Which policer has which table.
type Tables = Arc<Mutex<BTreeMap<String, u64>>>;

/// Does what is asked for through `door`, until nobody has its other end any more, nor a policer.
///
/// # Errors
/// When the door is none.
pub fn serve(door: OwnedFd) -> io::Result<()> {
    let tables = Tables::default();
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut number = 0;
    while let Some(visitor) = let_in(&door)? {
        threads.retain(|thread| !thread.is_finished());
        let Some(stream) = visitor.filter(|_| threads.len() < MOST) else { continue };
        number += 1;
        let session = Session { number, stream, tables: tables.clone(), policer: None };
        // Without a thread it is hung up on, and polices by itself.
        threads.extend(std::thread::Builder::new().spawn(move || session.run()).ok());
    }
    for thread in threads {
        let _ = thread.join();
    }
    Ok(())
}

/// The next one who comes, or something that is none; `None` outside: nobody will.
#[expect(clippy::option_option, reason = "an end, and one who is not let in")]
fn let_in(door: &OwnedFd) -> io::Result<Option<Option<UnixStream>>> {
    let mut version = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(door, &mut [IoSliceMut::new(&mut version)], &mut with, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let sockets = with.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    let socket = sockets.flatten().last().filter(|_| version == [protocol::VERSION]);
    Ok(Some(socket.map(UnixStream::from)))
}

/// One policer.
struct Session {
    number: u64,
    stream: UnixStream,
    tables: Tables,
    policer: Option<SynPolicer>,
}

impl Session {
    fn run(mut self) {
        // Whoever says what makes no sense is hung up on.
        while let Ok(Some(ask)) = protocol::receive(&mut self.stream) {
            let answer = self.answer(ask);
            if protocol::send(&mut self.stream, &answer).is_err() {
                break;
            }
        }
        let tables = self.tables.clone();
        self.give_up(&mut lock(&tables));
    }

    fn answer(&mut self, ask: Ask) -> Answer {
        let tables = self.tables.clone();
        let mut tables = lock(&tables);
        if let Ask::Install(wanted) = ask {
            return self.install(wanted, &mut tables);
        }
        let number = self.number;
        let own = self.policer.as_mut().filter(|policer| tables.get(policer.table()) == Some(&number));
        let Some(policer) = own else { return Answer::TakenOver };
        let done = match ask {
            Ask::Rate(rate) if !protocol::is_rate(rate) => return Answer::Refused("that is no rate".to_owned()),
            Ask::Rate(rate) => policer.set_rate(rate).map(Answer::Changed),
            Ask::Renew => policer.renew().map(|()| Answer::Done),
            Ask::Install(_) | Ask::Counts => policer.counts().map(|counts| Answer::Counts {
                classes: counts.into_iter().map(|counts| (counts.admitted, counts.refused)).collect(),
                changes: policer.changes(),
            }),
        };
        done.unwrap_or_else(|error| Answer::Failed(error.to_string()))
    }

    fn install(&mut self, wanted: Wanted, tables: &mut BTreeMap<String, u64>) -> Answer {
        let only_if_free = wanted.only_if_free;
        let plan = match wanted.plan() {
            Ok(plan) => plan,
            Err(why) => return Answer::Refused(why),
        };
        let table = plan.table();
        if only_if_free && tables.get(&table).is_some_and(|owner| *owner != self.number) {
            return Answer::TakenOver;
        }
        self.give_up(tables);
        match SynPolicer::install(plan) {
            Ok(policer) => {
                tables.insert(table, self.number);
                self.policer = Some(policer);
                Answer::Done
            }
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    /// Removes the rules, unless another one has them.
    fn give_up(&mut self, tables: &mut BTreeMap<String, u64>) {
        let Some(policer) = self.policer.take() else { return };
        if tables.get(policer.table()) == Some(&self.number) {
            tables.remove(policer.table());
        } else {
            policer.leave();
        }
    }
}

fn lock(tables: &Tables) -> MutexGuard<'_, BTreeMap<String, u64>> {
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}
