//! Challenges under way: what an authority that asks is answered, by whichever worker it comes to.
//!
//! One table serves the process: the authority may ask at the port of another application than the one whose
//! certificate is ordered, and a token is nothing that could be guessed or that would have to be kept secret.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::gate::head::{Framing, Head};
use crate::tls::settings::provider;

/// The protocol of validation by a handshake (RFC 8737), in its `ClientHello`.
pub(crate) const PROTOCOL: &[u8] = b"acme-tls/1";

/// Where an authority asks by HTTP (RFC 8555, section 8.3).
const PATH: &str = "/.well-known/acme-challenge/";

/// What is answered.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// To a request for the token: the text.
    Http(String),
    /// To a handshake for the host: the certificate.
    Tls(Arc<CertifiedKey>),
}

#[derive(Debug, Default)]
struct Table {
    /// By token.
    http: HashMap<String, String>,
    /// By host.
    tls: HashMap<String, Arc<CertifiedKey>>,
}

/// What each issuer has under way; there is one, but where several sentries are one process.
static TABLES: LazyLock<RwLock<BTreeMap<u64, Table>>> = LazyLock::new(RwLock::default);

/// How many issuers have some: one load tells who is not asked.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Whether any challenge is under way.
pub(crate) fn is_pending() -> bool {
    UNDER_WAY.load(Relaxed) > 0
}

/// Puts all that an issuer has under way in place of what it had.
pub(super) fn set(issuer: u64, all: impl IntoIterator<Item = (String, Answer)>) {
    let mut table = Table::default();
    for (name, answer) in all {
        match answer {
            Answer::Http(text) => drop(table.http.insert(name, text)),
            Answer::Tls(key) => drop(table.tls.insert(name, key)),
        }
    }
    let mut tables = TABLES.write().unwrap_or_else(PoisonError::into_inner);
    tables.remove(&issuer);
    if !table.http.is_empty() || !table.tls.is_empty() {
        tables.insert(issuer, table);
    }
    UNDER_WAY.store(tables.len(), Relaxed);
}

/// What an issuer has for this.
fn find<T>(wanted: impl Fn(&Table) -> Option<T>) -> Option<T> {
    TABLES.read().unwrap_or_else(PoisonError::into_inner).values().find_map(wanted)
}

/// The answer to a request of an authority; `None`: it is none, or one for somebody else.
pub(crate) fn answer(head: &Head<'_, '_>) -> Option<Vec<u8>> {
    if !is_pending() || head.method != "GET" || head.framing != Framing::None {
        return None;
    }
    let token = head.target.strip_prefix(PATH)?;
    let text = find(|table| table.http.get(token).cloned())?;
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncache-control: no-store\r\nconnection: close";
    Some(format!("{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len()).into_bytes())
}

/// What a handshake of an authority is answered with.
pub(crate) fn server_config() -> Option<Arc<ServerConfig>> {
    static CONFIG: OnceLock<Option<Arc<ServerConfig>>> = OnceLock::new();
    let make = || {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().ok()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(ByHost));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.send_tls13_tickets = 0;
        Some(Arc::new(config))
    };
    CONFIG.get_or_init(make).clone()
}

#[derive(Debug)]
struct ByHost;

impl ResolvesServerCert for ByHost {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name()?.to_ascii_lowercase();
        find(|table| table.tls.get(&host).cloned())
    }
}
