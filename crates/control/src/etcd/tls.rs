//! Connections to etcd by TLS: who it is, and who we are.
//!
//! The files are read for each connection, of which there are few: certificates that are renewed need no restart.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::EtcdTls;

impl EtcdTls {
    /// Whether its files can be used now.
    ///
    /// # Errors
    /// What is wrong with which.
    pub(crate) fn check(&self) -> Result<()> {
        self.config().map(drop)
    }

    /// Shakes hands with the server at `host:port`.
    pub(super) async fn wrap(&self, address: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(Error::other)?;
        TlsConnector::from(Arc::new(self.config()?)).connect(name, stream).await
    }

    fn config(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca_file)? {
            roots.add(certificate).map_err(|error| wrong(&self.ca_file, &error))?;
        }
        let versions = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let versions = versions.with_safe_default_protocol_versions().map_err(Error::other)?;
        let builder = versions.with_root_certificates(roots);
        let Some((cert_file, key_file)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| unread(key_file, &error))?;
        builder.with_client_auth_cert(certificates(cert_file)?, key).map_err(|error| wrong(cert_file, &error))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let all = all.map_err(|error| unread(path, &error))?;
    if all.is_empty() { Err(wrong(path, &"there is no certificate in it")) } else { Ok(all) }
}

fn unread(path: &Path, error: &pem::Error) -> Error {
    let problem = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => String::from("what is wanted is not in it; it is to be a PEM file"),
        other => other.to_string(),
    };
    wrong(path, &problem)
}

fn wrong(path: &Path, problem: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidData, format!("{}: {problem}", path.display()))
}
