//! HTTP as the ACME library asks for it: over our own TLS, so that one library computes and one list of authorities is
//! believed.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::Body;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::RootCertStore;
use tokio::net::TcpStream;

use crate::tls::client::{self, ToServer};
use crate::transport::Transport;

/// A whole exchange.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest answer; certificates have a few kilobytes.
const LONGEST: usize = 1 << 20;

/// A client of an authority: a connection for each request, of which there are a dozen in two months.
#[derive(Debug)]
pub(super) struct Client {
    roots: Arc<RootCertStore>,
}

impl Client {
    /// A client that believes these authorities, or those of this machine.
    ///
    /// # Errors
    /// When this machine knows none.
    pub(super) fn new(roots: Option<RootCertStore>) -> Result<Self, String> {
        let roots = roots.map_or_else(client::of_this_machine, |roots| Ok(Arc::new(roots)))?;
        Ok(Client { roots })
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let roots = self.roots.clone();
        Box::pin(async move {
            let place = request.uri().to_string();
            let done = tokio::time::timeout(PATIENCE, exchange(roots, request)).await;
            let done = done.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")));
            let told = |error| Error::Other(format!("{place}: {error}").into());
            done.map(BytesResponse::from).map_err(told)
        })
    }
}

async fn exchange(roots: Arc<RootCertStore>, mut request: Request<BodyWrapper<Bytes>>) -> io::Result<Response<Whole>> {
    let authority = request.uri().authority().cloned();
    let (Some(authority), Some("https")) = (authority, request.uri().scheme_str()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an authority is asked by https only"));
    };
    let at = if authority.port().is_some() { authority.to_string() } else { format!("{}:443", authority.host()) };
    let settings = client::client(Some(roots), None).map_err(io::Error::other)?;
    let tls = ToServer::with(settings, client::host(&at)).map_err(io::Error::other)?;
    let io = Transport::Tls(tls.shake(TcpStream::connect(&*at).await?).await?);
    let host = HeaderValue::from_str(authority.as_str()).map_err(io::Error::other)?;
    request.headers_mut().insert(header::HOST, host);
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse::<Uri>().map_err(io::Error::other)?;
    *request.uri_mut() = path;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(io)).await.map_err(io::Error::other)?;
    let answer = async {
        let (parts, mut body) = sender.send_request(request).await.map_err(io::Error::other)?.into_parts();
        let mut whole = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                whole.extend_from_slice(&data);
            }
            if whole.len() > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
            }
        }
        Ok(Response::from_parts(parts, String::from_utf8_lossy(&whole).into_owned()))
    };
    // The connection's end may be seen first; what came before it is still there to be taken.
    tokio::join!(answer, connection).0
}

/// An answer's body, which is JSON or PEM.
type Whole = String;
