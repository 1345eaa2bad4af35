//! Connections of sentries: bytes to messages and back, one task for each.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_wire::control::{Channel, ChannelError, ControlKeys, FromControl, FromSentry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::config::Config;
use crate::desk::Connection;

/// Messages to a sentry that it has not taken: one that lags further is cut off.
const LAG: usize = 16;
/// Who has not shown by then that it holds the key is cut off; so is who then does not say who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Who does not take what it is told is cut off.
const TAKES: Duration = Duration::from_secs(30);
/// The most connections at once.
const MOST: usize = 4096;
const BUFFER: usize = 16 * 1024;

/// Says yes once in ten seconds: anybody can make such lines in the log.
#[derive(Debug, Default)]
struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= Duration::from_secs(10));
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

/// What connections tell the daemon.
#[derive(Debug)]
pub(crate) enum News {
    /// The other side holds the key. What is sent to it goes in here; when that is dropped, the connection ends.
    Opened(Connection, Sender<FromControl>),
    /// The sentry sent a message.
    Said(Connection, FromSentry),
    /// It is over, for this reason.
    Closed(Connection, String),
}

/// The keys of the file, from now on and whenever it changes. One that makes no sense changes nothing.
pub(crate) fn follow_keys(config: &Config) -> watch::Receiver<ControlKeys> {
    let (sender, keys) = watch::channel(config.keys.clone());
    let mut file = config.key_file.clone();
    tokio::spawn(async move {
        let mut looks = tokio::time::interval(Duration::from_secs(1));
        while !sender.is_closed() {
            looks.tick().await;
            let Some(read) = file.poll(Instant::now()) else { continue };
            match read.and_then(|bytes| ControlKeys::from_secrets(&bytes, file.path())) {
                Ok(keys) => {
                    info!("the keys in {} are in force", file.path().display());
                    sender.send_replace(keys);
                }
                Err(error) => warn!("{error}; the keys of before stay in force"),
            }
        }
    });
    keys
}

/// Accepts sentries, for ever.
pub(crate) async fn listen<M>(listener: TcpListener, keys: watch::Receiver<ControlKeys>, news: Sender<M>)
where
    M: From<News> + Send + 'static,
{
    let mut next: Connection = 1;
    let places = Arc::new(tokio::sync::Semaphore::new(MOST));
    let suspicions = Arc::new(Seldom::default());
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Out of descriptors, most likely: let others end first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (connection, keys, news, suspicions) = (next, keys.clone(), news.clone(), suspicions.clone());
        next += 1;
        tokio::spawn(async move {
            let peer = stream.peer_addr();
            let why = match serve(stream, connection, keys, &news).await {
                Ok(()) => String::from("the connection was closed"),
                Err(error) => {
                    if error.kind() == io::ErrorKind::PermissionDenied && suspicions.is_due() {
                        let peer = peer.map_or_else(|error| error.to_string(), |peer| peer.to_string());
                        warn!("a connection from {peer} was cut off: {error}");
                    }
                    error.to_string()
                }
            };
            // The daemon may be ending.
            let _ = news.send(News::Closed(connection, why).into()).await;
            drop(place);
        });
    }
}

async fn serve<M: From<News>>(
    stream: TcpStream,
    connection: Connection,
    mut keys: watch::Receiver<ControlKeys>,
    news: &Sender<M>,
) -> io::Result<()> {
    // Refused only by a connection that is gone already.
    let _ = stream.set_nodelay(true);
    let mut stream = stream;
    let peer = stream.peer_addr()?.ip().to_canonical();
    let mut channel_ = Channel::answering(&keys.borrow_and_update());
    let opening = timeout(HANDSHAKE, open(&mut stream, &mut channel_)).await;
    opening.map_err(|_| io::Error::other("it did not show within 5 s that it holds the key"))??;
    let (sender, mut orders) = channel(LAG);
    let gone = || io::Error::other("the control plane stops");
    news.send(News::Opened(connection, sender).into()).await.map_err(|_| gone())?;
    let mut buffer = vec![0; BUFFER];
    let (silence, mut has_spoken) = (tokio::time::sleep(HANDSHAKE), false);
    tokio::pin!(silence);
    loop {
        while let Some(message) = channel_.poll_message().map_err(bad)? {
            has_spoken = true;
            speaks_for_itself(&channel_, &message)?;
            news.send(News::Said(connection, placed(message, peer)).into()).await.map_err(|_| gone())?;
        }
        flush(&mut stream, &mut channel_).await?;
        tokio::select! {
            read = stream.read(&mut buffer) => match read? {
                0 => return Ok(()),
                read => channel_.handle_bytes(&buffer[..read]).map_err(bad)?,
            },
            order = orders.recv() => match order {
                Some(order) => send_all(&mut channel_, order, &mut orders),
                None => {
                    flush(&mut stream, &mut channel_).await?;
                    return stream.shutdown().await;
                }
            },
            changed = keys.changed() => {
                let holds = changed.is_ok() && channel_.key().is_some_and(|key| keys.borrow_and_update().hold(key));
                if !holds {
                    return Err(io::Error::other("its key was taken out of the key file"));
                }
            }
            // From then on the daemon notices when it is silent.
            () = &mut silence, if !has_spoken => {
                return Err(io::Error::other("it did not say within 5 s which sentry it is"));
            }
        }
    }
}

/// A sentry that listens on every address of its machine is to be found where it comes from.
fn placed(mut message: FromSentry, peer: IpAddr) -> FromSentry {
    if let FromSentry::Hello(hello) = &mut message {
        let everywhere = hello.addresses.iter_mut().filter(|(_, address)| address.is_unspecified());
        everywhere.for_each(|(_, address)| *address = peer);
    }
    message
}

/// Who has a key of its own is the sentry that it was made for.
fn speaks_for_itself(channel_: &Channel, message: &FromSentry) -> io::Result<()> {
    match (message, channel_.key().and_then(|key| key.owner())) {
        (FromSentry::Hello(hello), Some(owner)) if hello.sentry != owner => {
            let said: String = hello.sentry.chars().take(100).collect();
            let why = format!("it has the own key of sentry {owner}, and says that it is {said}");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
        _ => Ok(()),
    }
}

/// Reads until the other side has shown that it holds the key.
async fn open(stream: &mut TcpStream, channel_: &mut Channel) -> io::Result<()> {
    let mut buffer = [0; 1024];
    while !channel_.is_open() {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let taken = channel_.handle_bytes(&buffer[..read]);
        // Also when it is refused: so that the other side learns the version.
        flush(stream, channel_).await?;
        taken.map_err(bad)?;
    }
    Ok(())
}

fn send_all(channel_: &mut Channel, first: FromControl, orders: &mut Receiver<FromControl>) {
    channel_.send(&first);
    while let Ok(order) = orders.try_recv() {
        channel_.send(&order);
    }
}

async fn flush(stream: &mut TcpStream, channel_: &mut Channel) -> io::Result<()> {
    let Some(bytes) = channel_.poll_bytes() else { return Ok(()) };
    let late = |_| io::Error::other("it does not take what it is told");
    timeout(TAKES, stream.write_all(&bytes)).await.map_err(late)?
}

fn bad(error: ChannelError) -> io::Error {
    let kind = if error == ChannelError::Key { io::ErrorKind::PermissionDenied } else { io::ErrorKind::InvalidData };
    io::Error::new(kind, error)
}
