//! Other sentries before the same servers: a thread that tells them how each application is doing, and hears of them.
//!
//! What is told and what follows from it is the engine's ([`tidegate_engine::Summary`], [`Circle`]); `exchange` judges
//! datagrams and time, `list` says where the others are, and this file moves datagrams. *Awkward cases.* All sentries
//! may have the same list, with themselves in it: who hears itself does not speak to that address again. A successor
//! has the same socket: it begins when its predecessor has said farewell, or else each would get half of what the
//! others say.
//!
//! [`Circle`]: tidegate_engine::Circle

mod exchange;
mod list;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};
use tidegate_wire::{Counts, MAX_DATAGRAM};
use tokio::sync::{Notify, watch};

use crate::app::App;
use crate::config;
use crate::names::{Belief, Member, Named};
use crate::reports::ignored;
use crate::sockets::{Sockets, name};
use exchange::Exchange;

/// Whose it is in the table of sockets.
const NAME: &str = "peers";
/// How often the thread looks whether it is to stop, at the latest.
const TICK: Duration = Duration::from_millis(20);
/// Room for what comes while the thread does something else.
const RECEIVE_BUFFER: usize = 1 << 20;
/// The most datagrams that are read before anything else is done.
const LOT: usize = 1024;

/// What is believed of names: a fleet may be larger than an application's servers are many, and the last known
/// addresses do no harm, as who is gone is not heard.
pub(crate) const BELIEF: Belief = Belief { most: 1024, hold: Duration::MAX };

/// The running exchange. Dropped, it says farewell and stops.
#[derive(Debug)]
pub(crate) struct Peers {
    view: Arc<View>,
    sockets: Sockets,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What is known of the others.
#[derive(Debug)]
pub struct View {
    address: SocketAddr,
    counts: Arc<Counts>,
    exchange: Mutex<Exchange>,
    /// Wakes who looks names up, when there may be others.
    looks: Arc<Notify>,
}

/// One of the others, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it is.
    pub address: SocketAddr,
    /// The name that leads there, with its port; `None`: the list has the address itself.
    pub name: Option<String>,
    /// How long ago it was heard; `None`: not yet, or not for so long that it counts as gone.
    pub heard: Option<Duration>,
    /// It is this sentry itself.
    pub is_self: bool,
}

impl Peers {
    /// Talks with the sentries that `config` names about `apps`, from the moment at which `open` says so, with the
    /// socket that was given or with a new one. It rings `looks` when there may be other names to look up.
    ///
    /// # Errors
    /// When the address cannot be bound, or the thread cannot be started.
    pub(crate) fn start(
        config: &config::Peers,
        apps: &[Arc<App>],
        open: watch::Receiver<bool>,
        looks: Arc<Notify>,
        given: &mut Sockets,
    ) -> io::Result<Peers> {
        let socket = match given.take(Type::DGRAM, NAME, config.listen).into_iter().next() {
            Some(socket) => UdpSocket::from(socket),
            None => bind(config.listen)?,
        };
        let address = socket.local_addr()?;
        let mut sockets = Sockets::default();
        sockets.add(name(NAME, address, 0), socket.try_clone()?);
        let counts = Arc::new(Counts::default());
        let exchange = Mutex::new(Exchange::new(config, address, apps.to_vec(), counts.clone()));
        let view = Arc::new(View { address, counts, exchange, looks });
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (view.clone(), stop.clone());
        let talk = move || talk(&socket, &shared, &open, &stopped);
        let thread = std::thread::Builder::new().name(String::from("tidegate-peers")).spawn(talk)?;
        Ok(Peers { view, sockets, stop, thread: Some(thread) })
    }

    /// Its socket, for the table.
    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// What it knows.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}

impl View {
    /// Where it listens, with the port that the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Datagrams taken, and ignored by reason.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The others, in the order of the configuration.
    pub fn peers(&self) -> Vec<Peer> {
        self.lock().peers(Instant::now())
    }

    /// Everything, as `/api/state` shows it.
    pub fn to_json(&self) -> Value {
        let peers = self.peers().into_iter().map(|peer| {
            json!({
                "address": peer.address.to_string(),
                "name": peer.name,
                "is_self": peer.is_self,
                "heard_seconds_ago": peer.heard.map(|ago| ago.as_secs_f64()),
            })
        });
        json!({
            "listen": self.address.to_string(),
            "taken": self.counts.taken(),
            "ignored": ignored(&self.counts),
            "sentries": peers.collect::<Vec<_>>(),
        })
    }

    /// After a reload: who the others are, and the keys.
    pub(crate) fn configure(&self, config: &config::Peers) {
        let mut exchange = self.lock();
        exchange.change_keys(&config.keys);
        exchange.configure(&config.sentries);
        drop(exchange);
        self.looks.notify_one();
    }

    /// Which names are to be looked up.
    pub(crate) fn wanted(&self) -> Vec<Named> {
        self.lock().wanted()
    }

    /// Names lead elsewhere now.
    pub(crate) fn find(&self, change: impl FnOnce(&mut HashMap<Named, Vec<Member>>)) {
        self.lock().find(change);
    }

    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn talk(socket: &UdpSocket, view: &View, open: &watch::Receiver<bool>, stop: &AtomicBool) {
    while !*open.borrow() {
        if stop.load(Relaxed) {
            return;
        }
        std::thread::sleep(TICK);
    }
    view.lock().begin(Instant::now());
    let mut send = |datagram: &[u8], to: SocketAddr| {
        // What is lost is said again with the next.
        let _ = socket.send_to(datagram, to);
    };
    // One byte more than any datagram of ours, to notice those that are longer.
    let mut buffer = [0; MAX_DATAGRAM + 1];
    while !stop.load(Relaxed) {
        let due = view.lock().due();
        let wait = due.saturating_duration_since(Instant::now()).clamp(Duration::from_micros(100), TICK);
        let _ = socket.set_read_timeout(Some(wait));
        for _ in 0..LOT {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { break };
            view.lock().hear(Instant::now(), &buffer[..length], from);
            if Instant::now() >= due {
                break;
            }
        }
        if Instant::now() >= due {
            view.lock().tell(Instant::now(), &mut send);
        }
    }
    view.lock().leave(&mut send);
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // What the system does not give is missed under load only.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}
