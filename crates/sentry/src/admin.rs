//! The admin API: the dashboard, metrics, health, state, history, events, and what can be changed by hand.
//!
//! It listens on an address of its own, on a thread of its own, so that it neither costs the workers anything nor is
//! ever policed. On loopback anyone on the machine may look; elsewhere, and wherever a token is configured, everything
//! but `/healthz`, `/readyz`, health over gRPC and the dashboard's own files needs `Authorization: Bearer <token>`, and
//! what KEDA asks for, unless it may ask without. Changes always do.

mod assets;
mod auth;
mod changes;
mod events;
mod grpc;
mod pages;
mod recorder;
mod scaler;
mod stream;
mod view;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::serve::Listener as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use socket2::Type;
use tidegate_visitors::{Bounds, Visitors};
use tokio::sync::{oneshot, watch};
use tracing::error;

pub(crate) use self::pages::stuck;
use crate::board::Board;
use crate::config;
use crate::sockets::{Sockets, plain};
use recorder::Recorder;

/// Whose its socket is in the table of sockets.
const NAME: &str = "admin";

/// Bytes that a change may be asked for with.
const CHANGE_BYTES: usize = 16 * 1024;

/// What a connection of HTTP/2 may have: requests at once, bytes of a request's head, of what is sent and not read, of
/// answers that are not taken.
const STREAMS: u32 = 16;
const HEAD_BYTES: u32 = 16 * 1024;
const WINDOW: u32 = 64 * 1024;
const SEND_BUFFER: usize = 64 * 1024;

/// When it stops, who has connected may ask within this time, and who has asked is answered within the second. Streams
/// of events never end by themselves.
const LAST_CALL: Duration = Duration::from_millis(100);
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// A running admin API. Dropped, it stops.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    sockets: Sockets,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the handlers share.
#[derive(Debug)]
struct Admin {
    board: Arc<Board>,
    token: Option<String>,
    /// Whoever scales the servers needs no token.
    serves_scalers: bool,
    recorder: Recorder,
    /// Event streams open now.
    viewers: AtomicUsize,
}

impl AdminServer {
    /// Starts the API at `listen`, with the socket that was given if it is there: when this returns, it answers.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the thread cannot be started.
    pub fn start(
        listen: SocketAddr,
        admin: &config::Admin,
        board: Arc<Board>,
        given: &mut Sockets,
    ) -> io::Result<Self> {
        let listen = crate::listen::usable(listen);
        let listener = match given.take(Type::STREAM, NAME, listen).pop() {
            Some(given) => TcpListener::from(given),
            None => TcpListener::bind(listen)?,
        };
        listener.set_nonblocking(true)?;
        let mut sockets = Sockets::default();
        sockets.add(format!("{NAME}/{}", plain(&listener.local_addr()?.to_string())), listener.try_clone()?);
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let state = Arc::new(Admin {
            board,
            token: admin.token.clone(),
            serves_scalers: admin.scaler,
            recorder: Recorder::new(),
            viewers: AtomicUsize::new(0),
        });
        let serve = move || {
            runtime.block_on(serve(listener, state, stopped));
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new().name("tidegate-admin".to_owned()).spawn(serve)?;
        Ok(AdminServer { address, sockets, stop: Some(stop), thread: Some(thread) })
    }

    /// Takes no more connections. Dropped, it waits for those that there are.
    pub(crate) fn leave(&mut self) {
        // The thread may be gone already.
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Its socket, for the table.
    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Where it listens, with the port that the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.leave();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<Admin>, stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            error!(%error, "the admin API cannot listen");
            return;
        }
    };
    let listener = Visitors::new(listener, Bounds::ADMIN);
    let background = state.clone();
    let (end, ending) = watch::channel(());
    tokio::select! {
        () = welcome(listener, router(state), ending) => {}
        () = background.board.measure_cpu() => {}
        () = background.recorder.run(&background.board) => {}
        // Stopped, or the handle is gone: either way it is over.
        _ = stopped => {}
    }
    // An error means that nobody is there; who still is after that is cut off.
    let _ = end.send(());
    let _ = tokio::time::timeout(LAST_ANSWERS, end.closed()).await;
}

/// Serves all who come, by HTTP/1.1, or HTTP/2 where a connection begins with its preface, as gRPC does.
async fn welcome(mut visitors: Visitors, router: Router, ending: watch::Receiver<()>) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    loop {
        let (visit, _) = visitors.accept().await;
        let (builder, service) = (builder.clone(), TowerToHyperService::new(router.clone()));
        let mut ending = ending.clone();
        tokio::spawn(async move {
            let mut served = pin!(builder.serve_connection(TokioIo::new(visit), service));
            let last_call = async {
                // An error means that it ends, too.
                let _ = ending.changed().await;
                tokio::time::sleep(LAST_CALL).await;
            };
            // How a visit ended is of no use to anybody.
            tokio::select! {
                _ = served.as_mut() => return,
                () = last_call => served.as_mut().graceful_shutdown(),
            }
            let _ = served.await;
        });
    }
}

fn router(state: Arc<Admin>) -> Router {
    let looking = Router::new()
        .route("/metrics", get(pages::metrics))
        .route("/api/state", get(pages::state))
        .route("/api/config", get(pages::config))
        .route("/api/history", get(pages::history))
        .route("/api/events", get(events::stream))
        .route("/api/stream", get(stream::stream))
        .route_layer(axum::middleware::from_fn_with_state(state.clone(), auth::check));
    let changing = Router::new()
        .route("/api/applications/{name}/shadow", post(changes::shadow))
        .route("/api/applications/{name}/servers/{server}", post(changes::server))
        .route("/api/applications/{name}/classes/{class}", post(changes::class))
        .layer(DefaultBodyLimit::max(CHANGE_BYTES))
        .route_layer(axum::middleware::from_fn_with_state(state.clone(), auth::check_change));
    let open = Router::new().route("/healthz", get(pages::healthz)).route("/readyz", get(pages::readyz));
    let health =
        Router::new().route(crate::health::grpc::PATH, post(grpc::check)).layer(DefaultBodyLimit::max(grpc::LONGEST));
    let scaler = Router::new().route(scaler::PATH, post(scaler::call)).layer(DefaultBodyLimit::max(scaler::LONGEST));
    let scaler = match state.serves_scalers {
        true => scaler,
        false => scaler.route_layer(axum::middleware::from_fn_with_state(state.clone(), auth::check)),
    };
    let all = looking.merge(changing).merge(open).merge(health).merge(scaler).merge(assets::router());
    all.layer(axum::middleware::map_response(assets::protect)).with_state(state)
}

#[cfg(test)]
mod tests;
