//! TLS to servers: whom the sentry believes, and how it shows who it is.

use std::collections::hash_map::DefaultHasher;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;

use super::HTTP2;
use super::session::Tls;
use super::settings::provider;
use crate::config::ServerTls;

/// What handshakes with an application's servers need.
///
/// # Errors
/// What rustls does not take.
pub(crate) fn client(
    roots: Option<Arc<RootCertStore>>,
    own: Option<Arc<CertifiedKey>>,
) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match roots {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider()))),
    };
    let mut config = match own {
        Some(own) => builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(own))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The authorities that this machine believes, read once.
///
/// # Errors
/// When it believes none.
pub(crate) fn of_this_machine() -> Result<Arc<RootCertStore>, String> {
    static ROOTS: OnceLock<Result<Arc<RootCertStore>, String>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("this machine knows no authorities; install ca-certificates, or give ca = \"FILE\"".to_owned());
        }
        Ok(Arc::new(roots))
    };
    ROOTS.get_or_init(read).clone()
}

/// How to speak TLS with one server.
#[derive(Clone, Debug)]
pub(crate) struct ToServer {
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The same for settings of the same content: connections outlive a reload that changes nothing.
    identity: u64,
}

impl PartialEq for ToServer {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity && self.name == other.name
    }
}

impl ToServer {
    /// The way to the server at `host:port`, to speak HTTP/2 or HTTP/1.1 with it.
    ///
    /// # Errors
    /// When that has no name that a certificate could have, or this machine believes no authority.
    pub(crate) fn new(settings: Option<&ServerTls>, at: &str, http2: bool) -> Result<Self, String> {
        let (mut client, identity) = match settings {
            Some(settings) => (settings.client.clone(), settings.identity),
            None => (client(Some(of_this_machine()?), None)?, 0),
        };
        if http2 {
            Arc::make_mut(&mut client).alpn_protocols = vec![HTTP2.to_vec()];
        }
        let name = match settings.and_then(|settings| settings.name.as_deref()) {
            Some(name) => name,
            None => host(at),
        };
        let name =
            ServerName::try_from(name.to_owned()).map_err(|_| format!("\"{name}\" is no name of a certificate"))?;
        Ok(ToServer { client, name, identity })
    }

    /// The way to the host of that name.
    ///
    /// # Errors
    /// When no certificate could have it.
    pub(crate) fn with(client: Arc<ClientConfig>, host: &str) -> Result<Self, String> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("\"{host}\" is no name of a certificate"))?;
        Ok(ToServer { client, name, identity: 0 })
    }

    /// The handshake, and whether it is that server.
    ///
    /// # Errors
    /// `InvalidData` when it is not, or speaks no TLS that we do; else what the system says.
    pub(crate) async fn shake(&self, io: TcpStream) -> io::Result<Box<Tls>> {
        let session = ClientConnection::new(self.client.clone(), self.name.clone()).map_err(io::Error::other)?;
        let mut tls = Tls::new(io, Connection::Client(session));
        poll_fn(|cx| tls.poll_handshake(cx)).await?;
        if self.client.alpn_protocols == [HTTP2] && tls.session().alpn_protocol() != Some(HTTP2) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not agree to speak HTTP/2"));
        }
        Ok(tls)
    }
}

/// The host of `host:port`.
pub(crate) fn host(at: &str) -> &str {
    let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The same for the same parts, as long as the process lives; never 0.
pub(crate) fn identity(parts: &[Option<&[u8]>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish().max(1)
}

/// Believes any server: `verify = false`.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_address_without_its_port() {
        assert_eq!(host("shop.internal:8443"), "shop.internal");
        assert_eq!(host("[2001:db8::1]:8443"), "2001:db8::1");
        assert_eq!(host("10.0.0.1:443"), "10.0.0.1");
    }
}
