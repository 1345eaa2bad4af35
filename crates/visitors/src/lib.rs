//! Connections to a port that is not for everybody, such as an admin API's: so many at most, each for as long as it
//! asks and is answered.
//!
//! When all seats are taken, who was silent for the longest makes room: a scraper that asks and is answered keeps its
//! seat beside a thousand connections that say nothing. A request must be whole soon after its first byte, however
//! slowly it trickles.

#![deny(clippy::print_stderr, clippy::print_stdout)]
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use futures_util::task::AtomicWaker;
use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a connection may leave what it was sent lying before it is cut: one that vanished says nothing.
const UNREAD: Duration = Duration::from_secs(30);

/// A listener whose connections are bounded.
#[derive(Debug)]
pub struct Visitors {
    listener: TcpListener,
    room: Arc<Room>,
    bounds: Bounds,
}

/// How many connections there may be, and how long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at one time.
    pub seats: usize,
    /// From a request's first byte to the first byte of its answer.
    pub to_answer: Duration,
    /// Without a byte either way.
    pub rest: Duration,
}

impl Bounds {
    /// Those of an admin API. Viewers of events are sent some bytes every 15 seconds.
    pub const ADMIN: Bounds = Bounds { seats: 256, to_answer: Duration::from_secs(10), rest: Duration::from_secs(60) };
}

/// All connections.
#[derive(Debug, Default)]
struct Room {
    seats: Mutex<Slab<Arc<Seat>>>,
    /// Counts up whenever bytes pass, on whichever connection.
    moves: AtomicU64,
}

/// What others see of a connection.
#[derive(Debug, Default)]
struct Seat {
    /// The number of its last move.
    moved: AtomicU64,
    /// It is to make room.
    gone: AtomicBool,
    waker: AtomicWaker,
}

/// A connection.
#[derive(Debug)]
pub struct Visit {
    io: TcpStream,
    seat: Arc<Seat>,
    key: usize,
    room: Arc<Room>,
    bounds: Bounds,
    /// When a byte passed last.
    moved: Instant,
    /// When the first byte came that was not answered yet.
    asked: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
}

impl Visitors {
    /// Takes connections from `listener`.
    pub fn new(listener: TcpListener, bounds: Bounds) -> Self {
        Visitors { listener, room: Arc::default(), bounds }
    }

    fn seat(&self, io: TcpStream) -> Visit {
        // A system that cannot do it closes the connection later.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&io, UNREAD.as_millis() as u32);
        let _ = io.set_nodelay(true);
        let (seat, key) = self.room.seat(self.bounds.seats);
        let (room, bounds, now) = (self.room.clone(), self.bounds, Instant::now());
        Visit { io, seat, key, room, bounds, moved: now, asked: None, alarm: Box::pin(sleep_until(now)) }
    }
}

impl Listener for Visitors {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visit, SocketAddr) {
        let (io, from) = Listener::accept(&mut self.listener).await;
        (self.seat(io), from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Room {
    /// A seat; when all are taken, whoever was silent for the longest goes.
    fn seat(&self, most: usize) -> (Arc<Seat>, usize) {
        let seat = Arc::new(Seat::default());
        self.note_move(&seat);
        let mut seats = self.lock();
        if seats.len() >= most {
            let seated = seats.iter().filter(|(_, seat)| !seat.gone.load(Relaxed));
            if let Some((_, seat)) = seated.min_by_key(|(_, seat)| seat.moved.load(Relaxed)) {
                seat.gone.store(true, Relaxed);
                seat.waker.wake();
            }
        }
        let key = seats.insert(seat.clone());
        (seat, key)
    }

    fn note_move(&self, seat: &Seat) {
        seat.moved.store(self.moves.fetch_add(1, Relaxed), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Slab<Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit {
    /// Until when a byte must pass.
    fn deadline(&self) -> Instant {
        self.asked.map_or(self.moved + self.bounds.rest, |asked| asked + self.bounds.to_answer)
    }

    fn note_move(&mut self) {
        self.moved = Instant::now();
        self.room.note_move(&self.seat);
    }

    /// Ready once the connection is to end.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.seat.waker.register(cx.waker());
        if self.seat.gone.load(Relaxed) {
            return Poll::Ready(io::ErrorKind::ConnectionAborted.into());
        }
        let deadline = self.deadline();
        if deadline <= Instant::now() {
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        self.alarm.as_mut().reset(deadline);
        // Armed; a clock that has just reached it is seen at the next look.
        self.alarm.as_mut().poll(cx).map(|()| io::ErrorKind::TimedOut.into())
    }

    /// Notes what was written; who takes nothing has to make room as one that says nothing does.
    fn wrote(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => return self.poll_over(cx).map(Err),
            Poll::Ready(Ok(1..)) => {
                self.asked = None;
                self.note_move();
            }
            Poll::Ready(_) => {}
        }
        written
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.room.lock().remove(self.key);
    }
}

impl AsyncRead for Visit {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, to);
        if polled.is_pending() {
            return self.poll_over(cx).map(Err);
        }
        if to.filled().len() > before {
            self.note_move();
            let now = self.moved;
            self.asked.get_or_insert(now);
        }
        polled
    }
}

impl AsyncWrite for Visit {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.wrote(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.wrote(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A listener, and a way to connect to it.
    async fn listening(bounds: Bounds) -> (Visitors, impl Fn() -> std::net::TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connect = move || {
            let stream = std::net::TcpStream::connect(address).expect("connects");
            stream.set_read_timeout(Some(LONG)).expect("a time-out");
            stream
        };
        (Visitors::new(listener, bounds), connect)
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn who_is_silent_makes_room_and_who_asks_stays() {
        run(async {
            let (mut visitors, connect) = listening(Bounds::ADMIN).await;
            let mut asking = connect();
            let (mut seated, _) = visitors.accept().await;
            let mut others = Vec::new();
            for _ in 0..Bounds::ADMIN.seats + 10 {
                let silent = connect();
                others.push((silent, visitors.accept().await.0));
                asking.write_all(b"x").expect("sends");
                assert_eq!(seated.read(&mut [0; 1]).await.expect("it may stay"), 1);
            }
            let gone = others.iter().filter(|(_, visit)| visit.seat.gone.load(Relaxed)).count();
            assert_eq!(gone, 11);
            let (_, first) = &mut others[0];
            assert_eq!(first.read(&mut [0; 1]).await.expect_err("gone").kind(), io::ErrorKind::ConnectionAborted);
            drop(others);
            assert_eq!(visitors.room.lock().len(), 1);
        });
    }

    #[test]
    fn who_takes_no_answer_makes_room() {
        run(async {
            let (mut visitors, connect) = listening(Bounds { seats: 1, ..Bounds::ADMIN }).await;
            let _deaf = connect();
            let (mut seated, _) = visitors.accept().await;
            let answering = async {
                loop {
                    if let Err(error) = seated.write(&[0; 65_536]).await {
                        return error.kind();
                    }
                }
            };
            let coming = async {
                let other = connect();
                (other, visitors.accept().await.0)
            };
            let both = async { tokio::join!(answering, coming) };
            let (ended, _others) = tokio::time::timeout(LONG, both).await.expect("its seat is taken away");
            assert_eq!(ended, io::ErrorKind::ConnectionAborted);
        });
    }

    #[test]
    fn a_request_that_trickles_is_cut_off() {
        run(async {
            let (mut visitors, connect) =
                listening(Bounds { seats: 1, to_answer: Duration::from_millis(50), rest: LONG * 60 }).await;
            let mut trickling = connect();
            let (mut slow, _) = visitors.accept().await;
            let error = loop {
                // A byte each time: one that counted from the last byte would never end.
                trickling.write_all(b"x").expect("sends");
                match slow.read(&mut [0; 1]).await {
                    Ok(read) => assert_eq!(read, 1),
                    Err(error) => break error,
                }
                if slow.deadline() <= Instant::now() {
                    break slow.read(&mut [0; 1]).await.expect_err("its time is up");
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_connection_that_rests_is_closed() {
        run(async {
            let (mut visitors, connect) =
                listening(Bounds { seats: 1, to_answer: LONG, rest: Duration::from_millis(20) }).await;
            let mut resting = connect();
            let (mut silent, _) = visitors.accept().await;
            assert_eq!(silent.read(&mut [0; 1]).await.expect_err("silent").kind(), io::ErrorKind::TimedOut);
            drop(silent);
            assert_eq!(resting.read(&mut [0; 1]).expect("closed"), 0);
        });
    }
}
