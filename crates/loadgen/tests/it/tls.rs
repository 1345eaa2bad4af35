//! TLS: whom the clients believe, and what they agree to speak.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http::Response;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{HandshakeKind, ServerConfig};
use tidegate_loadgen::{ErrorKind, LoadRun, Plan, Protocol, Report, Stream, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::support::{PATIENCE, Server, serve};

/// A server that shows a certificate for `localhost`, speaks both versions of HTTP or only the older one; and the
/// certificate.
fn server(speaks: &[&str]) -> (Server, String) {
    server_that_counts(speaks, Arc::default())
}

/// The same; it counts the sessions that were resumed.
fn server_that_counts(speaks: &[&str], resumed: Arc<AtomicUsize>) -> (Server, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).expect("a key");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("TLS");
    let mut config = builder.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).expect("a pair");
    config.alpn_protocols = speaks.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = Server::start(move |stream| {
        let (acceptor, resumed) = (acceptor.clone(), Arc::clone(&resumed));
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let was_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            resumed.fetch_add(usize::from(was_resumed), Relaxed);
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                return serve(stream, |(_, mut answer), _| {
                    let mut body = answer.send_response(Response::new(()), false).expect("a head");
                    body.send_data(Bytes::from_static(b"two"), true).expect("a body");
                })
                .await;
            }
            while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1").await.expect("an answer");
            }
        }
    });
    (server, cert.pem())
}

fn plan(server: &Server, protocol: Protocol, trust: Trust) -> Plan {
    let url = format!("https://localhost:{}/", server.address.port());
    let stream = Stream::new("all", "250/s".parse().expect("a profile")).timeout(PATIENCE);
    let stream = stream.arrivals(tidegate_workload::ArrivalProcess::Constant).url(&url, 1.0).expect("a URL");
    Plan { protocol, trust, ..Plan::new(vec![stream], std::time::Duration::from_millis(200)) }
}

fn ask(server: &Server, protocol: Protocol, trust: Trust) -> Report {
    LoadRun::start(plan(server, protocol, trust)).expect("a load").join().expect("a report")
}

#[test]
fn either_version_is_agreed_on_with_whoever_is_believed() {
    let (server, certificate) = server(&["h2", "http/1.1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, certificate).expect("a file");
    for trust in [Trust::Anybody, Trust::File(file)] {
        for (protocol, bytes) in [(Protocol::H1, 1), (Protocol::H2, 3)] {
            let report = ask(&server, protocol, trust.clone());
            assert_eq!((report.total.admitted, report.total.bytes), (50, 50 * bytes), "{protocol} {trust:?} {report}");
        }
    }
    assert_eq!(ask(&server, Protocol::H2, Trust::Anybody).generator.connections_opened, 1);
}

#[test]
fn who_is_not_believed_is_not_asked() {
    let (server, _) = server(&["h2"]);
    let (_, other) = self::server(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, other).expect("a file");
    let report = ask(&server, Protocol::H2, Trust::File(file));
    assert_eq!((report.total.sent, &report.total.errors), (0, &[(ErrorKind::Connect, 50)].into()), "{report}");
    let none = LoadRun::start(plan(&server, Protocol::H2, Trust::File("/no/such.pem".into())));
    let error = none.expect_err("nobody to believe").to_string();
    assert!(error.contains("/no/such.pem: cannot be read"), "{error}");
}

#[test]
fn a_server_that_does_not_agree_to_http2_gets_no_request() {
    let (server, _) = server(&["http/1.1"]);
    let report = ask(&server, Protocol::H2, Trust::Anybody);
    assert_eq!((report.total.sent, &report.total.errors), (0, &[(ErrorKind::Connect, 50)].into()), "{report}");
    assert_eq!(ask(&server, Protocol::H1, Trust::Anybody).total.admitted, 50);
}

#[test]
fn sessions_are_resumed_unless_each_handshake_is_to_be_a_full_one() {
    let resumed = Arc::<AtomicUsize>::default();
    let (server, _) = server_that_counts(&["http/1.1"], Arc::clone(&resumed));
    for resumes in [false, true] {
        let plan = Plan { keep_alive: false, resumes, ..plan(&server, Protocol::H1, Trust::Anybody) };
        let report = LoadRun::start(plan).expect("a load").join().expect("a report");
        assert_eq!(report.total.admitted, 50, "{report}");
        assert_eq!(resumed.load(Relaxed) > 0, resumes);
    }
}
