//! What a process knows beyond its configuration, as one value with a version.
//!
//! It goes to the successor as a file in memory that is sealed, which is on no disk, for it holds secrets. A value of
//! another version, or one that makes no sense, is no error: who gets it begins anew, and says so.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde::{Deserialize, Serialize};
use tidegate_engine::Learned;

use crate::app::App;
use crate::config::resolve::{adopt_process_seed, process_seed};
use crate::control::Followed;
use crate::tls::rank::KeptRanks;
use crate::tls::tickets::{self, TicketKey};

/// The version that this program writes, and the only one that it reads: fields may come and go within one, with
/// defaults, as long as those that are there mean what they meant.
const VERSION: u32 = 1;

/// More is not read: a hundred applications know less.
pub(super) const LARGEST: u64 = 256 << 20;

/// What goes from a process to its successor beside its sockets.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// What hashes of URLs, sessions and tenants are keyed with: what was learned goes by these.
    seed: u64,
    /// The keys of session tickets, while they are good.
    #[serde(default)]
    tickets: Vec<TicketKey>,
    /// What each application learned, by name.
    #[serde(default)]
    applications: BTreeMap<String, Learned>,
    /// Which addresses were important to each.
    #[serde(default)]
    ranks: BTreeMap<String, KeptRanks>,
    /// By which orders of a control plane it works.
    #[serde(default)]
    followed: Option<Followed>,
}

/// Every version has this.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl State {
    /// Of this process, of its applications, and of the control plane that it follows.
    pub(crate) fn now(apps: &[Arc<App>], followed: Option<Followed>) -> State {
        let applications = apps.iter().map(|app| (app.name().to_owned(), app.learned())).collect();
        let ranks = apps.iter().map(|app| (app.name().to_owned(), app.kept_ranks())).collect();
        State { version: VERSION, seed: process_seed(), tickets: tickets::keys(), applications, ranks, followed }
    }

    /// By which orders of a control plane the process before works.
    pub(crate) fn followed(&self) -> Option<&Followed> {
        self.followed.as_ref()
    }

    /// What an application of that name learned.
    pub(crate) fn learned(&self, app: &str) -> Option<&Learned> {
        self.applications.get(app)
    }

    /// Which addresses were important to an application of that name.
    pub(crate) fn ranks(&self, app: &str) -> Option<&KeptRanks> {
        self.ranks.get(app)
    }

    /// The same, for who begins when all that is at work is over; without secrets of connections, and without what is
    /// of its hour only: orders, and which addresses were important.
    pub(super) fn at_rest(&self) -> State {
        let mut applications = self.applications.clone();
        applications.values_mut().for_each(Learned::forget_work);
        let (tickets, ranks) = (Vec::new(), BTreeMap::new());
        State { version: VERSION, seed: self.seed, tickets, applications, ranks, followed: None }
    }

    /// As a sealed file in memory.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub fn seal(&self) -> io::Result<OwnedFd> {
        let file = memfd_create("tidegate-learned", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(file);
        file.write_all(&serde_json::to_vec(self)?)?;
        let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, all)?;
        Ok(file.into())
    }

    /// Out of such a file.
    ///
    /// # Errors
    /// Why there is nothing to be had from it, in words.
    pub fn open(file: OwnedFd) -> Result<State, String> {
        let mut file = File::from(file);
        let mut bytes = Vec::new();
        let read = file.rewind().and_then(|()| file.take(LARGEST).read_to_end(&mut bytes));
        read.map_err(|error| format!("it cannot be read: {error}"))?;
        State::read(&bytes)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<State, String> {
        let nonsense = |error: serde_json::Error| format!("it makes no sense: {error}");
        let Version { version } = serde_json::from_slice(bytes).map_err(nonsense)?;
        if version != VERSION {
            return Err(format!("it is of version {version}, and this program reads version {VERSION}"));
        }
        serde_json::from_slice(bytes).map_err(nonsense)
    }
}

/// From now on hashes are keyed as they were in the process that `state` comes from, and its tickets are good. Before a
/// configuration is read.
pub(super) fn adopt_secrets(state: &State) {
    adopt_process_seed(state.seed);
    tickets::adopt(&state.tickets);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_comes_out_again_and_cannot_be_changed() {
        let sealed = State::now(&[], None).seal().expect("there is memory");
        let mut other = File::from(sealed.try_clone().expect("a descriptor"));
        assert!(other.write_all(b"x").is_err());
        let opened = State::open(sealed).expect("it is the same");
        assert_eq!(opened.seed, process_seed());
    }

    /// What each version wrote that ever read and wrote this: later ones go on with it, or say why not.
    #[test]
    fn what_earlier_versions_wrote_is_read() {
        for (version, text) in [(1, include_str!("fixtures/learned-v1.json"))] {
            let state = State::read(text.as_bytes()).unwrap_or_else(|why| panic!("version {version}: {why}"));
            assert_eq!(state.seed, 7);
            for app in ["shop", "blog", "old"] {
                let learned = state.learned(app).expect("it is in there");
                assert_eq!((learned.urls(), learned.at_work() > 0), (2, true), "version {version}, {app}");
            }
        }
    }

    /// A later one may know more within a version. One of another version is set aside; nobody fails for it.
    #[test]
    fn what_a_later_version_wrote_is_read_as_far_as_it_is_known() {
        let mut later: serde_json::Value =
            serde_json::from_str(include_str!("fixtures/learned-v1.json")).expect("JSON");
        later["tides"] = serde_json::json!({ "high": [1, 2] });
        let shop = &mut later["applications"]["shop"];
        shop["moods"] = serde_json::json!(["calm"]);
        shop["classes"]["gold"]["mood"] = serde_json::json!("calm");
        shop["servers"]["one"]["capacity"]["tides"] = serde_json::json!(7);
        let state = State::read(later.to_string().as_bytes()).expect("the rest is known");
        assert_eq!(state.learned("shop").map(Learned::urls), Some(2));
        later["version"] = serde_json::json!(VERSION + 1);
        let why = State::read(later.to_string().as_bytes()).map(|_| ()).expect_err("it may mean something else");
        assert!(why.starts_with(&format!("it is of version {}", VERSION + 1)), "{why}");
    }

    #[test]
    fn another_version_and_nonsense_are_said_and_no_panic() {
        let read = |text: &str| State::read(text.as_bytes()).map(|_| ()).expect_err("nothing of it is used");
        assert_eq!(read(r#"{"version":2,"tides":[1,2]}"#), "it is of version 2, and this program reads version 1");
        assert!(read("").starts_with("it makes no sense: "));
        assert!(read(r#"{"version":1,"seed":"x"}"#).starts_with("it makes no sense: "));
    }
}
