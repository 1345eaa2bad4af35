//! rustls's settings from ours.

use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::HTTP2;
use super::certificates::Certificates;
use super::tickets::tickets;
use crate::config::{ClientCertificates, TlsVersion};

/// The library that computes: ring, which needs no more than a C compiler to be built.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// What an application's handshakes need; with `http2` that is offered, too.
///
/// # Errors
/// What rustls does not take.
pub(crate) fn server(
    certificates: Certificates,
    min_version: TlsVersion,
    clients: Option<(RootCertStore, ClientCertificates)>,
    http2: bool,
) -> Result<Arc<ServerConfig>, String> {
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(versions(min_version)).map_err(|error| error.to_string())?;
    // Who resumes shows no certificate again, so where certificates are asked for nobody resumes.
    let resumes = clients.is_none();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some((roots, wanted)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
            let verifier = match wanted {
                ClientCertificates::Required => verifier,
                _ => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(certificates));
    let protocols: &[&[u8]] = if http2 { &[HTTP2, b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // Tickets hold all there is to resume, whichever worker gets it, after a reload too.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if resumes {
        config.ticketer = tickets()?;
    } else {
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

fn versions(least: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    match least {
        TlsVersion::V12 => &BOTH,
        TlsVersion::V13 => &BOTH[..1],
    }
}
