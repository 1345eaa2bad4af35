//! The sentry's admin API, as far as it is needed here.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::state::State;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where to ask, and with which token.
pub(super) struct Admin {
    address: String,
    token: Option<String>,
    runtime: Runtime,
}

impl Admin {
    /// `address` is `host:port`, with or without `http://`.
    pub(super) fn new(address: &str, token: Option<&str>) -> Result<Admin> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = address.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Ok(Admin { address, token: token.map(str::to_owned), runtime })
    }

    /// The state, now.
    pub(super) fn state(&self) -> Result<State> {
        let asked =
            async { tokio::time::timeout(PATIENCE, get(&self.address, "/api/state", self.token.as_deref())).await };
        let body = match self.runtime.block_on(asked) {
            Ok(answer) => answer?,
            Err(_) => bail!("{} did not answer within {PATIENCE:?}", self.address),
        };
        serde_json::from_slice(&body).with_context(|| format!("{} does not answer as a sentry does", self.address))
    }
}

/// What an admin API answers to a request for `path`.
pub(in crate::cmd) async fn get(address: &str, path: &str, token: Option<&str>) -> Result<Bytes> {
    let stream = TcpStream::connect(address)
        .await
        .with_context(|| format!("cannot reach {address}: is that the address of [admin] listen, or of --admin?"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Its errors show as those of the request.
    let _driven = tokio::spawn(connection);
    let mut request = Request::get(path).header(header::HOST, address);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    match answer.status() {
        StatusCode::OK => Ok(answer.into_body().collect().await?.to_bytes()),
        StatusCode::UNAUTHORIZED => bail!("{address} requires the admin token: --token-file FILE"),
        status => bail!("{address} answered {status}: is it the right admin address?"),
    }
}
