//! Where names lead: asked of the control plane's DNS, as a client does that remembers an answer as long as it may.

use std::net::SocketAddr;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Resolver, TokioResolver};

/// A client of a name server.
#[derive(Debug)]
pub(super) struct Names(TokioResolver);

impl Names {
    /// One that asks there.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn ask(server: SocketAddr) -> Result<Names, String> {
        let mut way = ConnectionConfig::udp();
        way.port = server.port();
        let server = NameServerConfig::new(server.ip(), true, vec![way]);
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.build().map(Names).map_err(|error| error.to_string())
    }

    /// The addresses of a name, in order, on a port.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn look_up(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let found = self.0.lookup_ip(name).await.map_err(|error| format!("{name}: {error}"))?;
        let mut addresses: Vec<SocketAddr> = found.iter().map(|ip| SocketAddr::new(ip, port)).collect();
        addresses.sort_unstable();
        Ok(addresses)
    }
}
