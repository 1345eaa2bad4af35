//! Where an application listens, and how it speaks to clients and servers: plain or TLS.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};

use super::{Acme, SocketFile};

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; of a Unix socket: none.
    pub address: SocketAddr,
    /// The Unix socket, if it is one.
    pub socket: Option<SocketFile>,
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
        Listen { address: address.into(), socket: None, tls: false, proxy: ProxyIn::Off, redirect: None }
    }
}

impl Listen {
    /// Whether both are one listener, though they are different applications': the same address, but for a port that
    /// the system chooses, or the same Unix socket.
    pub(crate) fn is_same(&self, other: &Listen) -> bool {
        match (self.socket, other.socket) {
            (None, None) => self.address == other.address && self.address.port() != 0,
            (Some(own), Some(other)) => own.path() == other.path(),
            _ => false,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(socket) => socket.fmt(f),
            None => self.address.fmt(f),
        }
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

/// Whether connections to servers begin with a PROXY header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyOut {
    /// They do not.
    #[default]
    Off,
    /// In version 1, a line of text.
    V1,
    /// In version 2.
    V2,
}

impl ProxyOut {
    /// Every choice, in the order of messages.
    pub const ALL: [ProxyOut; 3] = [ProxyOut::Off, ProxyOut::V1, ProxyOut::V2];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            ProxyOut::Off => "off",
            ProxyOut::V1 => "v1",
            ProxyOut::V2 => "v2",
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
    /// One that is ordered from an authority, after those.
    pub acme: Option<Acme>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// What is asked of clients.
    pub clients: ClientCertificates,
    /// The authorities whose certificates of clients are good.
    pub client_ca: Option<PathBuf>,
    /// Whether requests must be for the host that the handshake named.
    pub match_host: bool,
    /// The certificates with their keys.
    pub(crate) keys: Vec<Arc<CertifiedKey>>,
    /// The same where the same is asked of clients; 0: nothing.
    pub(crate) asks: u64,
    /// What follows from all this.
    pub(crate) server: Arc<ServerConfig>,
}

impl Tls {
    /// The files that it was read from.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.certificates.iter().flat_map(|pair| [&pair.cert, &pair.key]).chain(&self.client_ca)
    }

    /// The file that it was read from if it was there, and is read from as soon as it is.
    pub fn issued(&self) -> Option<PathBuf> {
        self.acme.as_ref().map(Acme::certificate)
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
