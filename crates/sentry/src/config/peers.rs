//! The other sentries before the same servers, and how it is written where they are.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::place::{is_name, split_port};

/// The port at which sentries hear each other when nothing else is said.
pub(super) const PORT: u16 = 9903;

/// The other sentries before the same servers.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Where they are heard, and spoken to from, UDP.
    pub listen: SocketAddr,
    /// Where they are; this sentry may be one of them.
    pub sentries: Vec<PeerPlace>,
    /// The file with the secret that the sentries share.
    pub key_file: PathBuf,
    /// The keys that follow from it.
    pub keys: tidegate_wire::Keys,
}

/// Where other sentries are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerPlace {
    /// One, at an address.
    Address(SocketAddr),
    /// One at each address of a name, all on the same port.
    Host {
        /// The name, which is looked up.
        name: String,
        /// The port.
        port: u16,
    },
}

impl PeerPlace {
    /// What `text` says.
    ///
    /// # Errors
    /// Why it says nothing.
    pub(super) fn of(text: &str) -> Result<PeerPlace, String> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Err(format!("the port is missing; write \"{}\"", SocketAddr::new(ip, PORT)));
        }
        let example =
            format!("write an address such as \"10.0.0.2:{PORT}\", or a name such as \"sentries.example:{PORT}\"");
        let place = match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_unspecified() => {
                return Err(String::from("this is nobody's address; write that of one sentry"));
            }
            Ok(address) => PeerPlace::Address(address),
            Err(_) if is_host(text) => return Err(format!("the port is missing; write \"{text}:{PORT}\"")),
            Err(_) if !text.contains(':') => return Err(format!("this is neither a name nor an address; {example}")),
            Err(_) => match split_port(text)? {
                (name, port) if is_host(name) => PeerPlace::Host { name: name.to_owned(), port },
                _ => return Err(format!("this is neither a name nor an address; {example}")),
            },
        };
        match place {
            PeerPlace::Address(address) if address.port() == 0 => Err(format!("port 0 is no port; {example}")),
            PeerPlace::Host { port: 0, .. } => Err(format!("port 0 is no port; {example}")),
            place => Ok(place),
        }
    }
}

/// Whether it is a name that can have addresses: one that ends in a number is an address with a mistake in it.
fn is_host(text: &str) -> bool {
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    is_name(text) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

impl From<SocketAddr> for PeerPlace {
    fn from(address: SocketAddr) -> Self {
        PeerPlace::Address(address)
    }
}

/// As it is written in the file.
impl fmt::Display for PeerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerPlace::Address(address) => write!(f, "{address}"),
            PeerPlace::Host { name, port } => write!(f, "{name}:{port}"),
        }
    }
}
