//! Tests of a daemon that gets news late, or twice.

use tempfile::TempDir;
use tidegate_engine::Timestamp;
use tidegate_provision::Place;
use tidegate_wire::control::{FromSentry, Hello};
use tokio::sync::mpsc::channel;

use super::*;
use crate::backend::FileBackend;
use crate::plane::What;
use crate::provider::Presence;

/// A daemon on a store of its own, with nothing around it: it is told what a test says, and starts no threads.
struct Alone {
    daemon: Daemon,
    /// Where the store is.
    _folder: TempDir,
}

impl Alone {
    fn new() -> Alone {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("key"), "the secret of the tests").expect("a file");
        let text = "key_file = \"key\"\n[provider]\nkind = \"static\"\naddresses = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n\
                    [[application]]\nname = \"shop\"\ntarget = \"1s\"\nservice_time = \"50ms\"\nmin_servers = 1\n";
        let config = Config::parse(text, &folder.path().join("control.toml")).expect("makes sense");
        let store = FileBackend::new(&folder.path().join("store")).open(1).expect("opens");
        let (to_self, inbox) = channel(16);
        let mailbox = Mailbox { to_self, inbox, at_work: AtWork::default() };
        let mut daemon = Daemon::begin(config, false, store, mailbox, BTreeMap::new()).expect("begins");
        daemon.ledger.begin().expect("is written");
        Alone { daemon, _folder: folder }
    }

    fn told(&mut self, message: Message) {
        self.daemon.take(message).expect("is written");
        self.daemon.settle().expect("is written");
    }

    fn place(&self) -> Place {
        self.daemon.ledger.plane().places()[0]
    }

    /// The first server was asked for, and the provider is through with it.
    fn start(&mut self) -> Step {
        let step = self.daemon.ledger.plane().pending().next().cloned().expect("a server is asked for");
        assert_eq!(step.what, What::Start { application: 0 });
        self.told(Message::Applied(self.daemon.ledger.term(), step.clone(), Some(Ok(None))));
        step
    }
}

fn seen(place: Place, presence: Presence) -> Vec<Seen> {
    vec![Seen { server: 0, place, presence }]
}

#[test]
fn a_look_counts_only_for_what_was_looked_at() {
    let mut alone = Alone::new();
    alone.start();
    let (term, coming) = (alone.daemon.ledger.term(), alone.place());
    assert!(matches!(coming, Place::Coming { .. }), "{coming:?}");
    let drained = Place::Draining { application: 0, since: Timestamp::ZERO };
    alone.told(Message::Looked(term, Unit::Server, seen(drained, Presence::Absent)));
    assert_eq!(alone.place(), coming, "its earlier process has ended, which says nothing of this one");
    alone.told(Message::Looked(term - 1, Unit::Server, seen(coming, Presence::Absent)));
    assert_eq!(alone.place(), coming, "of a term in which another one may have led since");
    alone.told(Message::Looked(term, Unit::Server, seen(coming, Presence::Serving)));
    assert!(matches!(alone.place(), Place::Serving { .. }));
}

#[test]
fn a_step_that_failed_in_an_earlier_term_does_not_fail_what_serves() {
    let mut alone = Alone::new();
    let step = alone.start();
    let (term, coming) = (alone.daemon.ledger.term(), alone.place());
    alone.told(Message::Looked(term, Unit::Server, seen(coming, Presence::Serving)));
    let late = || Some(Err(ProviderError::Superseded { step: 1 }));
    alone.told(Message::Applied(term - 1, step.clone(), late()));
    assert!(matches!(alone.place(), Place::Serving { .. }));
    alone.told(Message::Applied(term, step, late()));
    assert!(matches!(alone.place(), Place::Failed { .. }), "of this term it counts");
}

#[test]
fn a_sentry_that_comes_back_gives_up_its_connection_before() {
    let mut alone = Alone::new();
    let (first, mut of_first) = channel(16);
    let (second, mut of_second) = channel(16);
    for (connection, link) in [(1, first), (2, second)] {
        let applications = vec![(String::from("shop"), 1)];
        let (sentry, addresses) = (String::from("a"), Vec::new());
        let hello = Hello { sentry, instance: 7, addresses, applications, asks: false };
        alone.told(Message::Link(News::Opened(connection, link)));
        alone.told(Message::Link(News::Said(connection, FromSentry::Hello(hello))));
    }
    let mut ended = false;
    while !ended {
        match of_first.try_recv() {
            Ok(_) => {}
            Err(why) => {
                assert_eq!(why, tokio::sync::mpsc::error::TryRecvError::Disconnected, "the connection is let go");
                ended = true;
            }
        }
    }
    assert!(matches!(of_second.try_recv(), Ok(FromControl::Welcome { .. })));
    alone.told(Message::Link(News::Closed(1, String::from("the connection was closed"))));
    assert_eq!(alone.daemon.sentries.desk.sentries().filter(|(_, known)| known.connection == Some(2)).count(), 1);
}

#[test]
fn only_sentries_that_ask_for_it_are_told_that_it_is_there() {
    let mut alone = Alone::new();
    let mut links = Vec::new();
    for (connection, asks) in [(1, true), (2, false)] {
        let (link, told) = channel(16);
        links.push(told);
        let (sentry, addresses, applications) = (format!("{asks}"), Vec::new(), vec![(String::from("shop"), 1)]);
        let hello = Hello { sentry, instance: connection, addresses, applications, asks };
        alone.told(Message::Link(News::Opened(connection, link)));
        alone.told(Message::Link(News::Said(connection, FromSentry::Hello(hello))));
    }
    alone.daemon.sentries.greet();
    for (told, asks) in links.iter_mut().zip([true, false]) {
        let said: Vec<FromControl> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        assert!(said.iter().any(|word| matches!(word, FromControl::Welcome { is_told, .. } if *is_told == asks)));
        assert_eq!(said.contains(&FromControl::Here), asks, "{said:?}");
    }
}

#[test]
fn for_one_server_one_thread_is_at_work_whatever_the_term() {
    let at_work = AtWork::default();
    let turn = at_work.begin((Unit::Server, 3)).expect("nobody is");
    assert!(at_work.clone().begin((Unit::Server, 3)).is_none() && at_work.begin((Unit::Sentry, 3)).is_some());
    drop(turn);
    assert!(at_work.begin((Unit::Server, 3)).is_some());
}
