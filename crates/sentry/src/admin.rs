//! The admin API: metrics, health, state, events, and the switch for shadow mode.
//!
//! It listens on an address of its own, on a thread of its own, so that it neither costs the workers anything nor is
//! ever policed. On loopback anyone on the machine may ask; elsewhere, and wherever a token is configured, everything
//! but `/healthz` and `/readyz` needs `Authorization: Bearer <token>`.

mod auth;
mod events;
mod pages;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tokio::sync::oneshot;

use crate::board::Board;
use crate::config;

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
        let state = Arc::new(Admin { board, token: admin.token.clone(), viewers: AtomicUsize::new(0) });
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
            eprintln!("tidegate: the admin API cannot listen: {error}");
            return;
        }
    };
    let measure = tokio::spawn({
        let board = state.board.clone();
        async move { board.measure_cpu().await }
    });
    tokio::select! {
        served = async { axum::serve(listener, router(state)).await } => {
            if let Err(error) = served {
                eprintln!("tidegate: the admin API ended: {error}");
            }
        }
        // Stopped, or the handle is gone: either way it is over.
        _ = stopped => {}
    }
    measure.abort();
}

fn router(state: Arc<Admin>) -> Router {
    let guarded = Router::new()
        .route("/", get(pages::index))
        .route("/metrics", get(pages::metrics))
        .route("/api/state", get(pages::state))
        .route("/api/config", get(pages::config))
        .route("/api/events", get(events::stream))
        .route("/api/applications/{name}/shadow", post(pages::shadow))
        .route_layer(axum::middleware::from_fn_with_state(state.clone(), auth::check));
    let open = Router::new().route("/healthz", get(pages::healthz)).route("/readyz", get(pages::readyz));
    guarded.merge(open).with_state(state)
}

#[cfg(test)]
mod tests;
