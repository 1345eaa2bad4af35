//! Reports of nuclei: a UDP listener on a thread of its own.
//!
//! `nuclei` judges each datagram and keeps what is known of every server's nucleus, `cores` how the cores of data
//! servers are divided; this file moves datagrams and time. Datagrams are taken in lots, a few milliseconds apart, so
//! that a thousand nuclei cost a few hundred wake-ups a second and one turn of each application's lock per lot.

mod cores;
pub(crate) mod cost;
pub(crate) mod ledger;
mod nuclei;
mod port;
mod signals;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tidegate_wire::{Counts, MAX_DATAGRAM, Rejected};

use crate::app::App;
use crate::config;
use crate::sockets::Sockets;
use nuclei::Nuclei;
use port::{Port, Sender};

pub use cores::Division;
pub use nuclei::NucleusState;
pub(crate) use signals::signals;

/// How often silence is looked for when nothing comes.
const TICK: Duration = Duration::from_millis(20);
/// Between two lots; and while cores are divided, so that a command is soon on its way.
const REST: Duration = Duration::from_millis(10);
const SHORT_REST: Duration = Duration::from_millis(4);
/// The most datagrams of a lot from senders that are known; and from others, which may be a flood.
const LOT: usize = 1024;
const STRANGERS: usize = 128;

/// A running listener. Dropped, it stops.
#[derive(Debug)]
pub struct Listener {
    view: Arc<View>,
    sockets: Sockets,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What is known of every nucleus, and what became of datagrams.
#[derive(Debug)]
pub struct View {
    address: SocketAddr,
    counts: Arc<Counts>,
    nuclei: Mutex<Nuclei>,
    origin: Instant,
}

impl Listener {
    /// Listens for reports about the servers of `apps`, with the sockets that were given, if they are there.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the thread cannot be started.
    pub fn start(config: &config::Reports, apps: &[Arc<App>], given: &mut Sockets) -> io::Result<Listener> {
        let mut port = Port::bind(config.listen, given)?;
        let sockets = port.sockets()?;
        let counts = Arc::new(Counts::default());
        let nuclei = Mutex::new(Nuclei::new(config, apps.to_vec(), counts.clone()));
        let view = Arc::new(View { address: port.address()?, counts, nuclei, origin: Instant::now() });
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (view.clone(), stop.clone());
        let listen = move || listen(&mut port, &shared, &stopped);
        let thread = std::thread::Builder::new().name(String::from("tidegate-report")).spawn(listen)?;
        Ok(Listener { view, sockets, stop, thread: Some(thread) })
    }

    /// Its sockets, for the table.
    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// What it knows.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }
}

impl Drop for Listener {
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

    /// The state of a server's nucleus, by the server's address, name or `application/name`.
    pub fn state(&self, server: &str) -> Option<NucleusState> {
        self.lock().state(server)
    }

    /// Everything, as `/api/state` shows it.
    pub fn to_json(&self) -> Value {
        json!({
            "listen": self.address.to_string(),
            "taken": self.counts.taken(),
            "ignored": ignored(&self.counts),
            "nuclei": self.lock().to_json(),
        })
    }

    /// Every nucleus's state, by server.
    pub(crate) fn nuclei(&self) -> Vec<(String, NucleusState, Option<f64>)> {
        self.lock().nuclei()
    }

    /// How the cores of each data server are divided that lends some, by the server's address.
    pub fn divisions(&self) -> Vec<(String, Division)> {
        self.lock().divisions()
    }

    /// After a reload: the keys, when a nucleus counts as silent, and what follows.
    pub(crate) fn configure(&self, config: &config::Reports) {
        self.lock().configure(config);
    }

    fn lock(&self) -> MutexGuard<'_, Nuclei> {
        self.nuclei.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// Datagrams that were ignored, by reason, as `/api/state` shows them.
pub(crate) fn ignored(counts: &Counts) -> Value {
    Rejected::ALL
        .into_iter()
        .map(|why| (why.name().to_owned(), counts.rejected(why).into()))
        .collect::<Map<_, _>>()
        .into()
}

fn listen(port: &mut Port, view: &View, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        port.wait(TICK);
        let mut nuclei = view.lock();
        nuclei.advance(view.now());
        let known = take(port, Sender::Known, LOT, &mut nuclei);
        let strangers = take(port, Sender::Stranger, if port.sorts() { STRANGERS } else { LOT }, &mut nuclei);
        nuclei.finish();
        while let Some((command, to)) = nuclei.poll_command() {
            port.send(command, to);
        }
        if let Some(senders) = nuclei.poll_senders() {
            port.know(&senders);
        }
        let rest = if nuclei.divides() { SHORT_REST } else { REST };
        drop(nuclei);
        // After a full lot of known senders' there are more.
        if known + strangers > 0 && known < LOT {
            std::thread::sleep(rest);
        }
    }
}

/// Handles datagrams that are there already, `most` of them: how many.
fn take(port: &Port, of: Sender, most: usize, nuclei: &mut Nuclei) -> usize {
    // One byte more than any datagram of ours, to notice those that are longer.
    let mut buffer = [0; MAX_DATAGRAM + 1];
    for taken in 0..most {
        let Some((length, from)) = port.receive(of, &mut buffer) else { return taken };
        if let Some(answer) = nuclei.handle(&buffer[..length], from) {
            port.send(answer, from);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::path::PathBuf;

    use tidegate_wire::Keys;

    use super::*;

    #[test]
    fn what_comes_behind_a_full_lot_is_of_the_next() {
        let mut given = Sockets::default();
        let port = Port::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &mut given).expect("listens");
        let to = port.address().expect("an address");
        let config = config::Reports {
            listen: to,
            key_file: PathBuf::new(),
            keys: Keys::derive(b"a secret of these tests"),
            silent_after: None,
            when_silent: config::WhenSilent::Exclude,
        };
        let counts = Arc::new(Counts::default());
        let mut nuclei = Nuclei::new(&config, Vec::new(), counts.clone());
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for _ in 0..9 {
            sender.send_to(b"no report", to).expect("sent");
        }
        let mut lots = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        while lots.iter().sum::<usize>() < 9 {
            assert!(Instant::now() < deadline, "{} came of nine", lots.iter().sum::<usize>());
            port.wait(TICK);
            lots.push(take(&port, Sender::Stranger, 4, &mut nuclei));
        }
        assert!(lots.iter().all(|lot| *lot <= 4), "{lots:?}");
        assert_eq!(Rejected::ALL.into_iter().map(|why| counts.rejected(why)).sum::<u64>(), 9, "each was looked at");
    }
}
