//! A server of HTTP/2 that answers as a test says.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Connection, SendResponse, handshake};
use http::Request;
use tidegate_loadgen::{LoadRun, Plan, Report, Stream};
use tidegate_workload::ArrivalProcess;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Longer than any answer takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A request, and the way back.
pub type Asked = (Request<RecvStream>, SendResponse<Bytes>);

/// A server on a thread of its own; it ends when dropped.
pub struct Server {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `serve` has every connection, as a task.
    pub fn start<F: Future<Output = ()> + 'static>(
        serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static,
    ) -> Server {
        let (address_in, address) = mpsc::sync_channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || async move {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
            address_in.send(listener.local_addr().expect("an address")).expect("the test waits");
            let accepting = async {
                loop {
                    let (stream, _) = listener.accept().await.expect("a connection");
                    tokio::task::spawn_local(serve(stream));
                }
            };
            tokio::select! {
                () = accepting => {}
                _ = stopped => {}
            }
        };
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build_local(Default::default());
            runtime.expect("a runtime").block_on(body());
        });
        Server { address: address.recv().expect("an address"), stop: Some(stop), thread: Some(thread) }
    }

    /// A server in clear text that answers each request with `answer`.
    pub fn answering(answer: impl Fn(Asked) + Clone + Send + 'static) -> Server {
        Server::start(move |stream| {
            let answer = answer.clone();
            async move { serve(stream, |asked, _| answer(asked)).await }
        })
    }

    /// 50 requests, one every 4 ms.
    pub fn plan(&self) -> Plan {
        let stream = Stream::new("all", "250/s".parse().expect("a profile")).timeout(PATIENCE);
        let stream = stream.arrivals(ArrivalProcess::Constant).url(&format!("http://{}/a", self.address), 1.0);
        Plan::new(vec![stream.expect("a URL")], Duration::from_millis(200))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let thread = self.thread.take().expect("it was started");
        assert!(thread.join().is_ok() || std::thread::panicking(), "the server panicked");
    }
}

/// Serves a connection to its end; `answer` may end it.
pub async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    stream: T,
    mut answer: impl FnMut(Asked, &mut Connection<T, Bytes>),
) {
    let Ok(mut connection) = handshake(stream).await else { return };
    while let Some(Ok(asked)) = connection.accept().await {
        answer(asked, &mut connection);
    }
}

pub fn run(plan: Plan) -> Report {
    LoadRun::start(plan).expect("a load").join().expect("a report")
}
