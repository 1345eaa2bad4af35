//! TLS: what is known of a connection that speaks it, and the parts that make it so.
//!
//! rustls does the protocol and no I/O of its own: `session.rs` moves its bytes under the gate and under connections to
//! servers. Before any of that, `hello.rs` reads what a client says of itself, and `budget.rs` decides whether the
//! worker has processor time for it, more important clients first (`rank.rs`), and whether the worker itself spends
//! it or a thread that gives way to it (`aside.rs`). `certificates.rs` chooses what is shown, `names.rs` reads what
//! clients show.

pub(crate) mod aside;
pub(crate) mod budget;
pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod hello;
mod names;
pub(crate) mod rank;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod tickets;
pub(crate) mod validity;

use http::HeaderValue;
use rustls::ServerConnection;

use self::names::names;

/// HTTP/2 by its name in handshakes.
pub(crate) const HTTP2: &[u8] = b"h2";

/// What a client's handshake said, for as long as its connection lasts.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The host that the client asked for, in lower case.
    host: Option<Box<str>>,
    /// The names in its certificate: alternative ones, or else the common one.
    names: Box<[String]>,
    /// The certificate as servers are told of it (RFC 9440).
    certificate: Option<HeaderValue>,
    /// What was asked of the client.
    asked: u64,
}

impl Facts {
    /// Of a session in which `asked` was asked of the client ([`crate::config::Tls`]).
    pub(crate) fn of(session: &ServerConnection, asked: u64) -> Facts {
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        Facts {
            host: session.server_name().map(Box::from),
            names: certificate.map(|certificate| names(certificate)).unwrap_or_default().into(),
            certificate: certificate.and_then(|certificate| names::header(certificate)),
            asked,
        }
    }

    /// Whether a request for `authority` belongs on this connection. Who named no host may ask for any.
    pub(crate) fn is_for(&self, authority: Option<&str>) -> bool {
        let (Some(named), Some(authority)) = (&self.host, authority) else { return true };
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case(named)
    }

    /// What was asked of the client.
    pub(crate) fn asked(&self) -> u64 {
        self.asked
    }

    /// The host that the client asked for.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The names in the client's certificate.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The client's certificate as a header value.
    pub(crate) fn certificate(&self) -> Option<&HeaderValue> {
        self.certificate.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_must_be_for_the_host_that_was_named() {
        let facts = |host: Option<&str>| Facts {
            host: host.map(Box::from),
            names: Box::default(),
            certificate: None,
            asked: 0,
        };
        let shop = facts(Some("shop.example"));
        for authority in ["shop.example", "Shop.Example", "shop.example:8443", "shop.example.", "shop.example.:443"] {
            assert!(shop.is_for(Some(authority)), "{authority}");
        }
        for authority in ["bank.example", "shop.example.evil", "", "[::1]:443"] {
            assert!(!shop.is_for(Some(authority)), "{authority}");
        }
        assert!(facts(None).is_for(Some("bank.example")), "a client without SNI");
    }
}
