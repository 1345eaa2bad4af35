//! Polls the providers for the states of servers and of sentries at posts, and turns changes into inputs.
//!
//! *Awkward cases.* Whether a sentry serves is not for the provider to say: it does when it speaks with the control
//! plane (`sentries.rs`). One that does not speak any more and serves all the same is left alone, as it works by its
//! last orders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Timestamp;
use tidegate_provision::{Place, ServerNews};
use tokio::sync::mpsc::Sender;

use super::Message;
use super::ledger::Ledger;
use crate::backend::StoreError;
use crate::desk::Desk;
use crate::plane::{Input, Process, Unit};
use crate::provider::{Presence, Provider};

/// Servers that are looked at in one round, at most; of more, in turns.
const LOOKS: usize = 1000;

/// Looks at what there is of a unit, one round at a time.
#[derive(Debug)]
pub(super) struct Looks {
    unit: Unit,
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
    pub(super) fn new(unit: Unit) -> Looks {
        Looks { unit, is_under_way: false, next: 0, silent: BTreeMap::new() }
    }

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
        let (provider, done, term, unit) = (provider.clone(), to_self.clone(), ledger.term(), self.unit);
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
            let _ = done.blocking_send(Message::Looked(term, unit, seen));
        });
    }

    /// What a round saw becomes news; whether there are any. Who serves and does not answer for longer than `patience`
    /// has failed. Of sentries, `desk` knows who speaks.
    pub(super) fn looked(
        &mut self,
        ledger: &mut Ledger,
        provider: &Arc<dyn Provider>,
        seen: &[Seen],
        patience: Duration,
        desk: Option<&Desk>,
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
        let (plane, unit) = (ledger.plane(), self.unit);
        let waits = self.waits(ledger);
        let holds = |seen: &&Seen| !waits.contains(&seen.server) && plane.places_of(unit)[seen.server] == seen.place;
        let speaks = |name: &String| desk.is_some_and(|desk| desk.speaks(name));
        let heard = |seen: &Seen| match (unit, desk) {
            (Unit::Sentry, Some(_)) => seen.heard(provider.name(seen.server).is_some_and(|name| speaks(&name))),
            _ => *seen,
        };
        let seen = seen.iter().filter(holds).map(heard);
        let news: Vec<_> = seen.filter_map(|seen| self.judge(now, seen, patience)).collect();
        if news.is_empty() {
            return Ok(false);
        }
        for (place, news, reason) in news {
            ledger.later(match unit {
                Unit::Server => Input::Server { now, server: place, news, reason },
                Unit::Sentry => Input::Post { now, post: place, news, name: provider.name(place), reason },
            });
        }
        ledger.write_batch()?;
        Ok(true)
    }

    /// The servers of the next round, with what is known of them.
    fn in_turn(&mut self, ledger: &Ledger) -> Vec<(usize, Place, Option<Process>)> {
        let (plane, unit) = (ledger.plane(), self.unit);
        let (waits, places) = (self.waits(ledger), plane.places_of(unit));
        let used = |server: &usize| !matches!(places[*server], Place::Free | Place::Failed { .. });
        let count = places.len();
        // Those that did not answer are looked at every time.
        let silent: Vec<usize> = self.silent.keys().copied().filter(used).collect();
        let in_turn = (0..count).map(|at| (self.next + at) % count).filter(used);
        let in_turn: Vec<usize> = in_turn.filter(|server| !self.silent.contains_key(server)).take(LOOKS).collect();
        self.next = in_turn.last().map_or(0, |server| server + 1);
        let servers = silent.into_iter().chain(in_turn).filter(|server| !waits.contains(server));
        servers.map(|server| (server, places[server], plane.process(unit, server))).collect()
    }

    /// Where a step is yet to be done.
    fn waits(&self, ledger: &Ledger) -> BTreeSet<usize> {
        ledger.plane().pending().filter(|step| step.unit == self.unit).map(|step| step.place).collect()
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

impl Seen {
    /// The same of a sentry, by whether it speaks.
    fn heard(self, speaks: bool) -> Seen {
        let presence = match (self.presence, self.place) {
            (Presence::Absent, _) => Presence::Absent,
            (_, Place::Coming { .. }) => Presence::Silent,
            (_, _) if speaks => Presence::Serving,
            (presence, _) => presence,
        };
        Seen { presence, ..self }
    }
}
