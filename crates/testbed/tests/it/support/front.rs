//! What stands before an emulated server: it does not let the server notice who leaves, answers `/events` with a stream
//! that stays open, and counts what is at work behind it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// The head of a stream.
pub const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// It runs until it is dropped.
pub struct Front {
    pub address: SocketAddr,
    work: Arc<Work>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Requests at the server, and the most there ever were.
#[derive(Default)]
struct Work {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Front {
    /// Before the server at `behind`.
    pub fn start(behind: SocketAddr) -> Front {
        let (stop, stopped) = oneshot::channel();
        let work = Arc::new(Work::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("an address");
        let counted = work.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = accept(listener, behind, counted) => {}
                    _ = stopped => {}
                }
            });
        });
        Front { address, work, stop: Some(stop), thread: Some(thread) }
    }

    /// The most requests that were at the server at once.
    pub fn most(&self) -> usize {
        self.work.most.load(Ordering::SeqCst)
    }

    /// Those that are there now.
    pub fn at_work(&self) -> usize {
        self.work.now.load(Ordering::SeqCst)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

async fn accept(listener: TcpListener, behind: SocketAddr, work: Arc<Work>) {
    loop {
        if let Ok((client, _)) = listener.accept().await {
            tokio::spawn(connection(client, behind, work.clone()));
        }
    }
}

/// Requests are small and come one at a time, so that each is one segment, and so is its answer.
async fn connection(mut client: TcpStream, behind: SocketAddr, work: Arc<Work>) {
    let _ = client.set_nodelay(true);
    let mut segment = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut segment).await {
        let asked = &segment[..length];
        if asked.starts_with(b"GET /events") {
            let begun = client.write_all(EVENTS.as_bytes()).await;
            let _ = begun.and(client.read(&mut [0]).await);
            return;
        }
        let now = work.now.fetch_add(1, Ordering::SeqCst) + 1;
        work.most.fetch_max(now, Ordering::SeqCst);
        // Whether the client still waits is not looked at.
        let answer = ask(behind, asked).await;
        work.now.fetch_sub(1, Ordering::SeqCst);
        let Ok(answer) = answer else { return };
        if client.write_all(&answer).await.is_err() {
            return;
        }
    }
}

async fn ask(server: SocketAddr, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    server.write_all(request).await?;
    let mut answer = vec![0; 4096];
    let length = server.read(&mut answer).await?;
    answer.truncate(length);
    Ok(answer)
}
