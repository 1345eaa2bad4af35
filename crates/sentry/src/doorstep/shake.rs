//! A TLS handshake over a socket: by the worker, or aside.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use rustls::{Connection, HandshakeKind, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Begun, SHAKING_KIB, TLS_KIB, note_late};
use crate::acme::challenge;
use crate::client::Client;
use crate::counters::Counter;
use crate::door::Door;
use crate::share::WorkerApp;
use crate::tls::Facts;
use crate::tls::aside::{Aside, Waits, advance};
use crate::tls::budget::{Kind, Took};
use crate::tls::session::Tls;

/// Room for what a client says next, bytes; for more of it there are more steps.
const NEXT: usize = 4096;

/// The handshake. `None`: it failed, or took too long.
pub(super) async fn shake(
    worker: &Rc<Door>,
    client: &Rc<Client>,
    mut socket: TcpStream,
    first: Vec<u8>,
    mut begun: Begun,
) -> Option<Box<Tls>> {
    let (config, asked) = worker.handshakes(begun.name.as_deref())?;
    let session = ServerConnection::new(config).ok()?;
    worker.count_own(client, SHAKING_KIB);
    let (doorstep, lane) = (worker.doorstep.clone(), worker.lane());
    let aside = begun.waits.take().map(|waits| (&doorstep.aside, waits));
    if aside.is_some() {
        lane.bump(Counter::HandshakesAside);
    }
    let took = Cell::default();
    let shaken = client.in_time(agree(&mut socket, session, first, aside, &took)).await;
    let took = took.get();
    let session = match shaken {
        Ok(Ok(session)) => session,
        failed => {
            begun.settle(None, took);
            match failed {
                Err(wait) => note_late(worker, wait),
                Ok(_) => lane.bump(Counter::HandshakesFailed),
            }
            return None;
        }
    };
    let (kind, count, nanos) = match session.handshake_kind() {
        Some(HandshakeKind::Resumed) => (Kind::Resumed, Counter::HandshakesResumed, Counter::NanosResumed),
        _ => (begun.full, Counter::HandshakesFull, Counter::NanosFull),
    };
    begun.settle(Some(kind), took);
    lane.bump(count);
    lane.add(nanos, u64::try_from(took.all().as_nanos()).unwrap_or(u64::MAX));
    worker.count_held(client, 0);
    worker.count_own(client, TLS_KIB);
    client.learn(Facts::of(&session, asked));
    Some(Tls::new(socket, Connection::Server(session)))
}

/// An authority looks at the certificate of its challenge, and leaves.
pub(super) async fn validate(worker: &Rc<WorkerApp>, client: &Rc<Client>, mut socket: TcpStream, first: Vec<u8>) {
    let Some(session) = challenge::server_config().and_then(|config| ServerConnection::new(config).ok()) else {
        return;
    };
    worker.count_own(client, SHAKING_KIB);
    let took = Cell::default();
    match client.in_time(agree(&mut socket, session, first, None, &took)).await {
        // Whether it liked what it saw it tells who ordered.
        Ok(Ok(session)) => {
            let mut tls = Tls::new(socket, Connection::Server(session));
            drop(client.in_time(tls.shutdown()).await);
        }
        Ok(Err(_)) => worker.lane().bump(Counter::HandshakesFailed),
        Err(wait) => note_late(worker, wait),
    }
}

/// Goes on until both sides have agreed, or sends the alert that says why not. `took`: so far.
async fn agree(
    socket: &mut TcpStream,
    mut session: ServerConnection,
    mut said: Vec<u8>,
    aside: Option<(&Aside, Waits)>,
    took: &Cell<Took>,
) -> io::Result<ServerConnection> {
    let (aside, mut waits) = aside.unzip();
    loop {
        let step = match aside {
            None => advance(session, &said),
            Some(aside) => {
                let waits = waits.take().unwrap_or_else(|| aside.enter());
                aside.advance(session, std::mem::take(&mut said), waits).await?
            }
        };
        session = step.session;
        took.set(took.get().and(step.took));
        send(&mut session, socket).await?;
        step.result?;
        if !session.is_handshaking() {
            return Ok(session);
        }
        said.clear();
        said.reserve(NEXT);
        if socket.read_buf(&mut said).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Sends what the session has for the other side.
async fn send(session: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<()> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes)?;
    }
    socket.write_all(&bytes).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use rustls::crypto::{ActiveKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup};
    use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
    use rustls::version::{TLS12, TLS13};
    use rustls::{ClientConfig, ClientConnection, Error, NamedGroup, RootCertStore, ServerConfig};
    use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

    use super::*;
    use crate::tls::settings::provider;

    /// A group of which no server knows: it asks for another one.
    #[derive(Debug)]
    struct Unheard;

    impl SupportedKxGroup for Unheard {
        fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
            Ok(Box::new(Unheard))
        }

        fn name(&self) -> NamedGroup {
            NamedGroup::X448
        }
    }

    impl ActiveKeyExchange for Unheard {
        fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
            Err(Error::General("nobody knows it".to_owned()))
        }

        fn pub_key(&self) -> &[u8] {
            &[7; 56]
        }

        fn group(&self) -> NamedGroup {
            NamedGroup::X448
        }
    }

    /// A client of a server's, and what came of their handshake there.
    fn meet(
        clients: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
        aside: Option<&Aside>,
    ) -> (io::Result<ServerConnection>, Took) {
        let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).expect("a certificate");
        let (certificate, key) = (made.cert.der().clone(), PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let server = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let server =
            server.expect("usable").with_no_client_auth().with_single_cert(vec![certificate.clone()], key.into());
        let server = ServerConnection::new(server.expect("usable").into()).expect("a session");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let client = ClientConfig::builder_with_provider(Arc::new(clients)).with_protocol_versions(versions);
        let client = client.expect("usable").with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("shop.example").expect("a name");
        let mut client = ClientConnection::new(client.into(), name).expect("a client");
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a listener");
        let mut io = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (socket, _) = listener.accept().expect("a connection");
        let client = thread::spawn(move || client.complete_io(&mut io).map(drop));
        socket.set_nonblocking(true).expect("a socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        let took = Cell::default();
        let shaken = runtime.block_on(async {
            let mut socket = TcpStream::from_std(socket).expect("a socket");
            let aside = aside.map(|aside| (aside, aside.enter()));
            agree(&mut socket, server, Vec::new(), aside, &took).await
        });
        match client.join().expect("no panic") {
            Ok(()) => assert!(shaken.is_ok()),
            Err(error) => assert!(error.to_string().contains("alert"), "{error}"),
        }
        (shaken, took.get())
    }

    /// Whatever a client makes of its handshake, the worker has no part in one that is done aside.
    #[test]
    fn all_of_a_handshake_is_done_where_it_began() {
        let usual = || CryptoProvider::clone(&provider());
        let unheard = || CryptoProvider {
            kx_groups: [&[&Unheard as &dyn SupportedKxGroup], &usual().kx_groups[..]].concat(),
            ..usual()
        };
        let asks_again = HandshakeKind::FullWithHelloRetryRequest;
        for (clients, versions, kind) in [
            (usual(), [&TLS13], HandshakeKind::Full),
            (usual(), [&TLS12], HandshakeKind::Full),
            (unheard(), [&TLS13], asks_again),
        ] {
            let aside = Aside::default();
            for aside in [Some(&aside), None] {
                let (shaken, took) = meet(clients.clone(), &versions, aside);
                assert_eq!(shaken.expect("a handshake").handshake_kind(), Some(kind));
                assert!(took.all() > Duration::ZERO);
                let elsewhere = if aside.is_some() { took.here } else { took.aside };
                assert_eq!(elsewhere, Duration::ZERO, "{kind:?}");
            }
            assert_eq!(aside.waiting(), 0);
        }
    }

    /// The client hears why there is no handshake, whoever found out.
    #[test]
    fn a_handshake_that_cannot_be_ends_with_an_alert() {
        let aside = Aside::default();
        let is_other = |suite: &SupportedCipherSuite| suite.version() == &TLS12;
        let mut none = CryptoProvider::clone(&provider());
        none.cipher_suites.retain(is_other);
        none.kx_groups = vec![&Unheard];
        for aside in [Some(&aside), None] {
            let (shaken, took) = meet(none.clone(), &[&TLS12], aside);
            assert_eq!(shaken.expect_err("no group in common").kind(), io::ErrorKind::InvalidData);
            assert!(took.all() > Duration::ZERO);
        }
    }
}
