//! How the clients of a run speak with services: protocol, TLS, limits; and the form that requests take for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Uri};
use rustls::ClientConfig;
use tokio::sync::watch;

use crate::dial::Dialer;
use crate::exchange::Client;
use crate::grpc;
use crate::http1::Pool;
use crate::http2::{self, Bounds, Connections};
use crate::plan::{Destination, Plan, is_secure};
use crate::protocol::Protocol;
use crate::tls::{self, Secure, TlsError};
use crate::users::UsersPlan;

/// How clients speak.
pub(crate) struct Way {
    pub(crate) protocol: Protocol,
    tls: Option<Arc<ClientConfig>>,
    bounds: Bounds,
    patience: Option<Duration>,
}

impl Way {
    /// That of a plan's clients.
    ///
    /// # Errors
    /// When it takes TLS, and there is nobody to believe.
    pub(crate) fn of_plan(plan: &Plan) -> Result<Way, TlsError> {
        let bounds = bounds(plan.protocol, plan.connections, plan.per_connection, plan.keep_alive);
        let mut urls = plan.streams.iter().flat_map(|stream| &stream.urls);
        let takes_tls = urls.any(|(url, _)| is_secure(url));
        let tls = takes_tls.then(|| tls::client(&plan.trust, plan.protocol, plan.resumes)).transpose()?;
        Ok(Way { patience: plan.connect_timeout, ..Way::new(plan.protocol, bounds, tls) })
    }

    /// That of users, each of whom has one connection.
    ///
    /// # Errors
    /// As of a plan.
    pub(crate) fn of_users(plan: &UsersPlan) -> Result<Way, TlsError> {
        let bounds = bounds(plan.protocol, 1, 1, plan.keep_alive);
        let tls = is_secure(plan.base()).then(|| tls::client(&plan.trust, plan.protocol, true)).transpose()?;
        Ok(Way::new(plan.protocol, bounds, tls))
    }

    fn new(protocol: Protocol, bounds: Bounds, tls: Option<Arc<ClientConfig>>) -> Way {
        Way { protocol, tls, bounds, patience: None }
    }

    /// How TLS is spoken with the host of a URL, if it is.
    ///
    /// # Errors
    /// When no certificate could have that name.
    pub(crate) fn secure(&self, url: &Uri) -> Result<Option<Secure>, TlsError> {
        let Some(config) = self.tls.as_ref().filter(|_| is_secure(url)) else { return Ok(None) };
        Secure::new(config, host(url), self.protocol).map(Some)
    }

    /// Connections to a destination, or to the `members` that stand for it; none of them is open yet.
    pub(crate) fn client(
        &self,
        destination: &Destination,
        members: Option<watch::Receiver<Vec<SocketAddr>>>,
    ) -> Client {
        let secure = destination.secure.clone();
        let dialer = Dialer { members, secure, patience: self.patience, ..Dialer::new(destination.addresses.clone()) };
        match self.protocol.is_multiplexed() {
            true => Client::Http2(Connections::new(dialer, self.bounds)),
            false => Client::Http1(Pool::new(dialer, self.bounds.connections, self.bounds.keep_alive)),
        }
    }

    /// Brings a request into the form in which it is sent. It comes with the path as its target, and `Host`.
    pub(crate) fn fit<B>(&self, request: &mut Request<B>, is_secure: bool) {
        match self.protocol {
            Protocol::H1 if self.bounds.keep_alive => {}
            Protocol::H1 => drop(request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"))),
            Protocol::H2 => http2::fit(request, is_secure),
            Protocol::Grpc => {
                http2::fit(request, is_secure);
                grpc::fit(request);
            }
        }
        *request.version_mut() = self.protocol.version();
    }
}

fn bounds(protocol: Protocol, connections: usize, streams: usize, keep_alive: bool) -> Bounds {
    Bounds { connections, streams, keep_alive, is_grpc: protocol == Protocol::Grpc }
}

/// The host of a URL, without the brackets of an IPv6 address.
pub(crate) fn host(url: &Uri) -> &str {
    url.host().unwrap_or("").trim_matches(['[', ']'])
}
