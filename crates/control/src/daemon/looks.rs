//! Polls the provider for the states of servers, and turns changes into inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Timestamp;
use tidegate_provision::{Place, ServerNews};
use tokio::sync::mpsc::Sender;

use super::Message;
use super::ledger::Ledger;
use crate::backend::StoreError;
use crate::plane::{Input, Process};
use crate::provider::{Presence, Provider};

/// Servers that are looked at in one round, at most; of more, in turns.
const LOOKS: usize = 1000;

/// Looks at servers, one round at a time.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// A round is under way.
    is_under_way: bool,
    /// The server that is looked at next, where there are too many to look at all.
    next: usize,
    /// Since when servers that serve have not answered.
    silent: BTreeMap<usize, Timestamp>,
}

/// How a server was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(super) server: usize,
    /// Where it was when it was asked.
    pub(super) place: Place,
    pub(super) presence: Presence,
}

impl Looks {
    /// Begins a round, unless one is under way.
    pub(super) fn look(&mut self, ledger: &Ledger, provider: &Arc<dyn Provider>, to_self: &Sender<Message>) {
        if self.is_under_way {
            return;
        }
        let servers = self.in_turn(ledger);
        if servers.is_empty() {
            return;
        }
        self.is_under_way = true;
        let (provider, done, term) = (provider.clone(), to_self.clone(), ledger.term());
        tokio::task::spawn_blocking(move || {
            let look = |&(server, place, known): &(usize, Place, Option<Process>)| Seen {
                server,
                place,
                presence: provider.look(server, known),
            };
            // Some at a time, so that one that does not answer holds up few others.
            let seen = std::thread::scope(|scope| {
                let lots: Vec<_> = servers
                    .chunks(servers.len().div_ceil(8))
                    .map(|lot| scope.spawn(move || lot.iter().map(look).collect::<Vec<_>>()))
                    .collect();
                lots.into_iter().flat_map(|lot| lot.join().unwrap_or_default()).collect()
            });
            // The daemon may be ending.
            let _ = done.blocking_send(Message::Looked(term, seen));
        });
    }

    /// What a round saw becomes news; whether there are any. Who serves and does not answer for longer than `patience`
    /// has failed.
    pub(super) fn looked(
        &mut self,
        ledger: &mut Ledger,
        provider: &Arc<dyn Provider>,
        seen: &[Seen],
        patience: Duration,
    ) -> Result<bool, StoreError> {
        self.is_under_way = false;
        if ledger.is_away() {
            // It is looked again when it can be written down.
            return Ok(false);
        }
        let now = ledger.now();
        for (kind, text) in provider.take_notes() {
            ledger.note(&kind, text)?;
        }
        // What came up meanwhile changes what is to be seen, also where the step for it is done already.
        let plane = ledger.plane();
        let waits: BTreeSet<usize> = plane.pending().map(|step| step.server).collect();
        let holds = |seen: &&Seen| !waits.contains(&seen.server) && plane.places()[seen.server] == seen.place;
        let news: Vec<_> = seen.iter().filter(holds).filter_map(|seen| self.judge(now, *seen, patience)).collect();
        if news.is_empty() {
            return Ok(false);
        }
        for (server, news, reason) in news {
            ledger.later(Input::Server { now, server, news, reason });
        }
        ledger.write_batch()?;
        Ok(true)
    }

    /// The servers of the next round, with what is known of them.
    fn in_turn(&mut self, ledger: &Ledger) -> Vec<(usize, Place, Option<Process>)> {
        let plane = ledger.plane();
        let waits: BTreeSet<usize> = plane.pending().map(|step| step.server).collect();
        let used = |server: &usize| !matches!(plane.places()[*server], Place::Free | Place::Failed { .. });
        let count = plane.places().len();
        // Those that did not answer are looked at every time.
        let silent: Vec<usize> = self.silent.keys().copied().filter(used).collect();
        let in_turn = (0..count).map(|at| (self.next + at) % count).filter(used);
        let in_turn: Vec<usize> = in_turn.filter(|server| !self.silent.contains_key(server)).take(LOOKS).collect();
        self.next = in_turn.last().map_or(0, |server| server + 1);
        let servers = silent.into_iter().chain(in_turn).filter(|server| !waits.contains(server));
        servers.map(|server| (server, plane.places()[server], plane.process(server))).collect()
    }

    /// What it means for a server that it was seen so.
    fn judge(&mut self, now: Timestamp, seen: Seen, patience: Duration) -> Option<(usize, ServerNews, String)> {
        let Seen { server, place, presence } = seen;
        if presence != Presence::Silent {
            self.silent.remove(&server);
        }
        match (place, presence) {
            (Place::Coming { .. }, Presence::Serving) => Some((server, ServerNews::Up, String::from("it answers"))),
            (Place::Coming { .. } | Place::Serving { .. } | Place::Draining { .. }, Presence::Absent) => {
                Some((server, ServerNews::Failed, String::from("its process has ended by itself")))
            }
            (Place::Serving { .. }, Presence::Silent) => {
                let since = *self.silent.entry(server).or_insert(now);
                (now.since(since) > patience).then(|| {
                    self.silent.remove(&server);
                    (server, ServerNews::Failed, format!("it runs and has not answered for {patience:?}"))
                })
            }
            _ => None,
        }
    }
}
