//! Who has names looked up: applications for their servers, and the exchange with other sentries.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::course::{Belief, Member};
use super::give;
use super::lookup::Named;
use crate::app::App;
use crate::peers;

/// One of them.
#[derive(Clone, Debug)]
pub(super) enum Seeker {
    App(Arc<App>),
    Peers(Arc<peers::View>),
}

impl Seeker {
    /// All that there are.
    pub(super) fn all(apps: &[Arc<App>], peers: Option<&Arc<peers::View>>) -> Vec<Seeker> {
        apps.iter().cloned().map(Seeker::App).chain(peers.cloned().map(Seeker::Peers)).collect()
    }

    /// It has found where names lead.
    pub(super) fn find(&self, change: impl FnOnce(&mut HashMap<Named, Vec<Member>>)) {
        match self {
            Seeker::App(app) => give(app, |found| change(&mut found.names)),
            Seeker::Peers(view) => view.find(change),
        }
    }

    /// What it wants looked up.
    pub(super) fn names(&self) -> Vec<Named> {
        match self {
            Seeker::App(app) => app.wanted().names,
            Seeker::Peers(view) => view.wanted(),
        }
    }

    pub(super) fn wants(&self, named: &Named) -> bool {
        self.names().contains(named)
    }

    /// How much of an answer it believes.
    pub(super) fn belief(&self) -> Belief {
        match self {
            Seeker::App(_) => Belief::default(),
            Seeker::Peers(_) => peers::BELIEF,
        }
    }

    /// The application's name, if it is one.
    pub(super) fn application(&self) -> Option<&str> {
        match self {
            Seeker::App(app) => Some(app.name()),
            Seeker::Peers(_) => None,
        }
    }
}

/// Where its names stand in the configuration.
impl fmt::Display for Seeker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seeker::App(app) => write!(f, "servers of \"{}\"", app.name()),
            Seeker::Peers(_) => f.write_str("sentries of [peers]"),
        }
    }
}
