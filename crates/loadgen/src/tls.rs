//! TLS to services: whom the clients believe, and what they agree to speak.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::protocol::Protocol;

/// Whose certificates clients believe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trust {
    /// Those of the authorities that this machine knows.
    #[default]
    System,
    /// Those of the authorities in a PEM file.
    File(PathBuf),
    /// Anybody's: for services whose certificates nobody vouches for.
    Anybody,
}

/// Why there is nothing to begin a handshake with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file of authorities cannot be used.
    #[error("{}: {reason}", file.display())]
    Authorities {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// This machine knows nobody to believe.
    #[error("this machine knows no authorities; install ca-certificates, or name a file of them")]
    NoAuthorities,
    /// No certificate could have such a name.
    #[error("\"{0}\" is no name of a certificate")]
    Name(String),
    /// What rustls does not take.
    #[error("cannot speak TLS: {0}")]
    Rustls(#[from] Error),
}

/// How to speak TLS with one host.
#[derive(Clone)]
pub(crate) struct Secure {
    connector: TlsConnector,
    name: ServerName<'static>,
    protocol: Protocol,
}

impl Secure {
    /// # Errors
    /// When no certificate could have the host's name.
    pub(crate) fn new(config: &Arc<ClientConfig>, host: &str, protocol: Protocol) -> Result<Secure, TlsError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))?;
        Ok(Secure { connector: TlsConnector::from(Arc::clone(config)), name, protocol })
    }

    /// The handshake, and whether it is that host and speaks what is wanted.
    ///
    /// # Errors
    /// What the system or rustls says; `InvalidData` when it does not agree to speak HTTP/2.
    pub(crate) async fn shake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let stream = self.connector.connect(self.name.clone(), stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if self.protocol.is_multiplexed() && agreed != Some(self.protocol.alpn()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not agree to speak HTTP/2"));
        }
        Ok(stream)
    }
}

/// What handshakes need. Sessions are resumed, as browsers do it, unless each handshake is to be a full one.
///
/// # Errors
/// When there is nobody to believe, or rustls does not take something.
pub(crate) fn client(trust: &Trust, protocol: Protocol, resumes: bool) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::Anybody => builder.dangerous().with_custom_certificate_verifier(Arc::new(Credulous(provider))),
        Trust::System => builder.with_root_certificates(of_this_machine()?),
        Trust::File(file) => builder.with_root_certificates(of_file(file)?),
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

fn of_this_machine() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoAuthorities) } else { Ok(roots) }
}

fn of_file(file: &PathBuf) -> Result<RootCertStore, TlsError> {
    let failed = |reason: String| TlsError::Authorities { file: file.clone(), reason };
    let text = std::fs::read(file).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| failed(format!("is no PEM file: {error}")))?;
        roots.add(certificate).map_err(|error| failed(format!("has a certificate of no use: {error}")))?;
    }
    if roots.is_empty() { Err(failed("has no certificate".to_owned())) } else { Ok(roots) }
}

/// Believes any server that can sign.
#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
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
    fn a_file_that_is_no_help_says_why() {
        let none = client(&Trust::File("/no/such.pem".into()), Protocol::H2, true).unwrap_err().to_string();
        assert!(none.starts_with("/no/such.pem: cannot be read"), "{none}");
        let this = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let error = client(&Trust::File(this), Protocol::H2, true).unwrap_err().to_string();
        assert!(error.ends_with("Cargo.toml: has no certificate"), "{error}");
        assert!(client(&Trust::Anybody, Protocol::H1, true).is_ok());
    }
}
