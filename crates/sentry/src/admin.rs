//! The admin API: the dashboard, metrics, health, state, history, events, and what can be changed by hand.
//!
//! It listens on an address of its own, on a thread of its own, so that it neither costs the workers anything nor is
//! ever policed. On loopback anyone on the machine may look; elsewhere, and wherever a token is configured, everything
//! but `/healthz`, `/readyz` and the dashboard's own files needs `Authorization: Bearer <token>`. Changes always do.

mod assets;
mod auth;
mod changes;
mod events;
mod pages;
mod recorder;
mod stream;
mod view;
mod visitors;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::sync::oneshot;
use tracing::error;

use crate::board::Board;
use crate::config;
use recorder::Recorder;
use visitors::Visitors;

/// Bytes that a change may be asked for with.
const CHANGE_BYTES: usize = 16 * 1024;

/// A running admin API. Dropped, it stops.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the handlers share.
#[derive(Debug)]
struct Admin {
    board: Arc<Board>,
    token: Option<String>,
    recorder: Recorder,
    /// Event streams open now.
    viewers: AtomicUsize,
}

impl AdminServer {
    /// Starts the API at `listen`: when this returns, it answers.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the thread cannot be started.
    pub fn start(listen: SocketAddr, admin: &config::Admin, board: Arc<Board>) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let state = Arc::new(Admin {
            board,
            token: admin.token.clone(),
            recorder: Recorder::new(),
            viewers: AtomicUsize::new(0),
        });
        let serve = move || {
            runtime.block_on(serve(listener, state, stopped));
            // Event streams never end by themselves.
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new().name("tidegate-admin".to_owned()).spawn(serve)?;
        Ok(AdminServer { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, with the port that the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        // The thread may be gone already.
        let _ = self.stop.take().map(|stop| stop.send(()));
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
    let listener = Visitors::new(listener);
    let background = state.clone();
    tokio::select! {
        served = async { axum::serve(listener, router(state)).await } => {
            if let Err(error) = served {
                error!(%error, "the admin API ended");
            }
        }
        () = background.board.measure_cpu() => {}
        () = background.recorder.run(&background.board) => {}
        // Stopped, or the handle is gone: either way it is over.
        _ = stopped => {}
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
    let all = looking.merge(changing).merge(open).merge(assets::router());
    all.layer(axum::middleware::map_response(assets::protect)).with_state(state)
}

#[cfg(test)]
mod tests;
