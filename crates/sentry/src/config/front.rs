//! Where an application listens, and how it speaks to clients and servers: plain or TLS.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, ServerConfig};

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// Whether connections begin with a TLS handshake.
    pub tls: bool,
    /// Whether they begin with a PROXY header, before any handshake.
    pub proxy: ProxyIn,
    /// The port of https that all requests are sent to; `None`: they are served.
    pub redirect: Option<NonZeroU16>,
}

impl<T: Into<SocketAddr>> From<T> for Listen {
    /// A listener for plain HTTP.
    fn from(address: T) -> Self {
        Listen { address: address.into(), tls: false, proxy: ProxyIn::Off, redirect: None }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Whether a listener's connections begin with a PROXY header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyIn {
    /// Never.
    #[default]
    Off,
    /// Those from networks in `forwarded.trust` may: whoever does not begin with one is who it seems.
    Optional,
    /// All must, and only networks in `forwarded.trust` may connect.
    Required,
}

impl ProxyIn {
    /// Every choice, in the order of messages.
    pub const ALL: [ProxyIn; 3] = [ProxyIn::Off, ProxyIn::Optional, ProxyIn::Required];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            ProxyIn::Off => "off",
            ProxyIn::Optional => "optional",
            ProxyIn::Required => "required",
        }
    }
}

/// How an application speaks TLS to its clients.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificates, in file order; where none fits, the first is sent.
    pub certificates: Vec<CertificateFiles>,
    /// The certificate is one of the process's own making, which no client trusts.
    pub self_signed: bool,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// What is asked of clients.
    pub clients: ClientCertificates,
    /// The authorities whose certificates of clients are good.
    pub client_ca: Option<PathBuf>,
    /// Whether requests must be for the host that the handshake named.
    pub match_host: bool,
    /// What follows from all this.
    pub(crate) server: Arc<ServerConfig>,
}

impl Tls {
    /// The files that it was read from.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.certificates.iter().flat_map(|pair| [&pair.cert, &pair.key]).chain(&self.client_ca)
    }
}

/// What is spoken with a server: the beginning of its address says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spoken {
    /// TLS, below all else.
    pub(crate) tls: bool,
    /// HTTP/2, known before the first byte; otherwise HTTP/1.1.
    pub(crate) http2: bool,
}

impl Spoken {
    const SCHEMES: [(&str, Spoken); 3] = [
        ("https://", Spoken { tls: true, http2: false }),
        ("h2://", Spoken { tls: true, http2: true }),
        ("h2c://", Spoken { tls: false, http2: true }),
    ];

    /// What is spoken with the server at an address, and the address without that.
    pub(crate) fn of(address: &str) -> (Spoken, &str) {
        let scheme = Self::SCHEMES.iter().find_map(|(scheme, spoken)| Some((*spoken, address.strip_prefix(scheme)?)));
        scheme.unwrap_or((Spoken { tls: false, http2: false }, address))
    }
}

/// How an application speaks TLS to those of its servers whose addresses begin with `https://` or `h2://`.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The authorities that are believed; `None`: those of this machine.
    pub ca: Option<PathBuf>,
    /// The name that servers' certificates must have; `None`: that of their address.
    pub name: Option<String>,
    /// What the sentry shows them of itself.
    pub certificate: Option<CertificateFiles>,
    /// Whether they must show who they are.
    pub verify: bool,
    /// What follows from all this.
    pub(crate) client: Arc<ClientConfig>,
    /// The same for the same settings and content of files.
    pub(crate) identity: u64,
}

impl ServerTls {
    /// The files that it was read from.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.certificate.iter().flat_map(|pair| [&pair.cert, &pair.key]).chain(&self.ca)
    }
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, PEM.
    pub cert: PathBuf,
    /// The key, PEM.
    pub key: PathBuf,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2, RFC 5246.
    #[default]
    V12,
    /// 1.3, RFC 8446.
    V13,
}

impl TlsVersion {
    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            TlsVersion::V12 => "1.2",
            TlsVersion::V13 => "1.3",
        }
    }
}

/// What is asked of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Nothing.
    #[default]
    Off,
    /// A certificate, if they have one; one that is not good ends the handshake.
    Optional,
    /// A certificate.
    Required,
}

impl ClientCertificates {
    /// Every choice, in the order of messages.
    pub const ALL: [ClientCertificates; 3] =
        [ClientCertificates::Off, ClientCertificates::Optional, ClientCertificates::Required];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            ClientCertificates::Off => "off",
            ClientCertificates::Optional => "optional",
            ClientCertificates::Required => "required",
        }
    }
}
