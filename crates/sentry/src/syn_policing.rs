//! New connections of an application: at which rate they are let in, by what, and how many were.
//!
//! The controller says the rate; who carries it out is settled at the start ([`Mechanism`]). The kernel does it before
//! a handshake (`tidegate-kernel`, driven by `monitor`). Where that is not possible the workers accept and reset, which
//! costs a handshake, but answers no request and takes no memory. Requests on open connections, the admin port and
//! exempt clients are never concerned.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tidegate_classify::Network;
use tidegate_engine::{Timestamp, TokenBucket};

pub use tidegate_kernel::helper::{Helper, serve};
pub use tidegate_kernel::privilege;

use crate::config;

/// What turns connections away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Nothing: no policy asks for it, or it is off.
    #[default]
    Off,
    /// The kernel, before the handshake.
    Nftables,
    /// The workers: accept, and reset.
    AcceptAndReset,
}

impl Mechanism {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Off => "off",
            Mechanism::Nftables => "nftables",
            Mechanism::AcceptAndReset => "accept-and-reset",
        }
    }
}

/// What is in force, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Settled {
    /// What turns connections away.
    pub mechanism: Mechanism,
    /// Why not the next better one; empty for the best.
    pub why: String,
}

/// A class of clients, counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Its name; `rest` is the last.
    pub class: String,
    /// Let in.
    pub admitted: u64,
    /// Turned away.
    pub refused: u64,
}

/// New connections of one application.
#[derive(Debug, Default)]
pub struct Syn {
    in_force: Mutex<Settled>,
    wanted: Mutex<Wanted>,
    /// Whether workers must ask [`Syn::lets_in`].
    asks: AtomicBool,
    changes: AtomicU64,
    /// What the last change of the kernel's rate took, nanoseconds; 0 before the first.
    change_took: AtomicU64,
    buckets: Mutex<Buckets>,
    /// As the kernel counts.
    counts: Mutex<Vec<Counted>>,
}

/// What the controller wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wanted {
    /// Connections per second; `None`: all.
    pub(crate) rate: Option<f64>,
    /// How many may come at once.
    pub(crate) depth: f64,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted { rate: None, depth: 20.0 }
    }
}

/// Buckets of the user-space policer: of each class, the rest's last.
#[derive(Debug, Default)]
struct Buckets {
    classes: Vec<(Vec<Network>, f64, Option<TokenBucket>, Counted)>,
    exempt: Vec<Network>,
}

impl Syn {
    /// What is in force, and why.
    pub fn in_force(&self) -> Settled {
        lock(&self.in_force).clone()
    }

    /// Connections per second that are let in; `None`: all.
    pub fn rate(&self) -> Option<f64> {
        self.wanted().rate
    }

    /// How often the rate in the kernel was changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// What the last of them took.
    pub fn change_took(&self) -> Option<Duration> {
        Some(self.change_took.load(Relaxed)).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    /// Connections by class while a rate was set.
    pub fn counts(&self) -> Vec<Counted> {
        match self.in_force().mechanism {
            Mechanism::Off => Vec::new(),
            Mechanism::Nftables => lock(&self.counts).clone(),
            Mechanism::AcceptAndReset => lock(&self.buckets).classes.iter().map(|class| class.3.clone()).collect(),
        }
    }

    /// Settles what is in force: at the start, and again if that comes to its end.
    pub(crate) fn settle(&self, mechanism: Mechanism, why: String, config: &config::SynPolicing) {
        let counted = |class: &str| Counted { class: class.to_owned(), admitted: 0, refused: 0 };
        let sum: f64 = config.classes.iter().map(|class| class.share).sum::<f64>() + config.rest_share;
        let class = |class: &config::SynClass| {
            (class.network.clone(), class.share / sum, None::<TokenBucket>, counted(&class.name))
        };
        let rest = (Vec::new(), config.rest_share / sum, None, counted("rest"));
        let mut buckets = lock(&self.buckets);
        buckets.classes = config.classes.iter().map(class).chain([rest]).collect();
        buckets.exempt = config.exempt.clone();
        *lock(&self.in_force) = Settled { mechanism, why };
    }

    /// The controller wants another rate.
    pub(crate) fn want(&self, now: Timestamp, rate: Option<f64>, depth: f64) {
        *lock(&self.wanted) = Wanted { rate, depth };
        if self.in_force().mechanism != Mechanism::AcceptAndReset {
            return;
        }
        for (_, part, bucket, _) in &mut lock(&self.buckets).classes {
            let depth = (depth * *part).max(1.0);
            match (bucket, rate) {
                (Some(bucket), Some(rate)) => bucket.adjust(now, rate * *part, depth),
                (bucket, rate) => *bucket = rate.map(|rate| TokenBucket::new(rate * *part, depth)),
            }
        }
        self.asks.store(rate.is_some(), Relaxed);
    }

    pub(crate) fn wanted(&self) -> Wanted {
        *lock(&self.wanted)
    }

    /// What the kernel counted, and how often it was given another rate.
    pub(crate) fn note(&self, counts: Vec<Counted>, changes: u64) {
        *lock(&self.counts) = counts;
        self.changes.store(changes, Relaxed);
    }

    /// The kernel was given another rate, which took so long.
    pub(crate) fn note_change(&self, took: Duration) {
        self.change_took.store(took.as_nanos() as u64, Relaxed);
    }

    /// Whether a connection that was accepted may stay: always, unless the workers are the policers.
    pub(crate) fn lets_in(&self, now: impl FnOnce() -> Timestamp, peer: SocketAddr) -> bool {
        if !self.asks.load(Relaxed) {
            return true;
        }
        lock(&self.buckets).lets_in(now(), peer.ip().to_canonical())
    }
}

impl Buckets {
    fn lets_in(&mut self, now: Timestamp, peer: IpAddr) -> bool {
        if self.exempt.iter().any(|network| network.contains(&peer)) {
            return true;
        }
        let rest = self.classes.len() - 1;
        let holds = |class: &(Vec<Network>, f64, Option<TokenBucket>, Counted)| {
            class.0.iter().any(|network| network.contains(&peer))
        };
        let at = self.classes.iter().position(holds).unwrap_or(rest);
        let (_, _, bucket, counted) = &mut self.classes[at];
        let let_in = bucket.as_mut().is_none_or(|bucket| bucket.conforms(now));
        let count = if let_in { &mut counted.admitted } else { &mut counted.refused };
        *count += 1;
        let_in
    }
}

/// Closes a connection by a reset: nothing is left of it here.
pub(crate) fn reset(socket: TcpStream) {
    // A socket that cannot be told to is closed in the ordinary way.
    let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn(mechanism: Mechanism) -> Syn {
        let syn = Syn::default();
        let premium =
            config::SynClass { name: "premium".to_owned(), network: vec!["10.1.0.0/16".parse().unwrap()], share: 3.0 };
        let exempt = vec!["10.9.9.9/32".parse().unwrap()];
        let config = config::SynPolicing { classes: vec![premium], exempt, ..config::SynPolicing::default() };
        syn.settle(mechanism, String::new(), &config);
        syn
    }

    fn let_in(syn: &Syn, from: &str, count: usize) -> usize {
        let peer: SocketAddr = format!("{from}:1").parse().unwrap();
        (0..count).filter(|_| syn.lets_in(|| Timestamp::ZERO, peer)).count()
    }

    #[test]
    fn workers_turn_away_what_finds_no_token_in_its_class() {
        let syn = syn(Mechanism::AcceptAndReset);
        assert_eq!(let_in(&syn, "10.2.0.1", 50), 50, "no rate yet");
        syn.want(Timestamp::ZERO, Some(1.0), 20.0);
        assert_eq!(let_in(&syn, "10.2.0.1", 50), 5);
        assert_eq!(let_in(&syn, "10.1.0.1", 50), 15);
        assert_eq!(let_in(&syn, "10.9.9.9", 50), 50, "never policed");
        let counts: Vec<_> = syn.counts().into_iter().map(|c| (c.class, c.admitted, c.refused)).collect();
        assert_eq!(counts, [("premium".to_owned(), 15, 35), ("rest".to_owned(), 5, 45)]);
        syn.want(Timestamp::ZERO, None, 20.0);
        assert_eq!(let_in(&syn, "10.2.0.1", 50), 50);
    }

    #[test]
    fn where_the_kernel_does_it_workers_ask_nothing() {
        let syn = syn(Mechanism::Nftables);
        syn.want(Timestamp::ZERO, Some(1.0), 20.0);
        assert_eq!(let_in(&syn, "10.2.0.1", 50), 50);
        assert_eq!((syn.rate(), syn.in_force().mechanism.name()), (Some(1.0), "nftables"));
    }
}
