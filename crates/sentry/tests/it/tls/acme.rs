//! Certificates ordered from a real ACME server, Let's Encrypt's Pebble, with a DNS of our own: all on loopback.

use std::cell::Cell;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tidegate_sentry::Process;
use tidegate_sentry::config::Config;
use tidegate_sentry::counters::Counter;

use super::site::{Authority, Folder, ask, connect, mirror, status};
use crate::support::{Client, RawServer, until};

const HOST: &str = "shop.tidegate.test";

/// A program; ended when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Pebble, the DNS that it asks, and the authority of its own address.
struct Pebble {
    _programs: [Running; 2],
    port: u16,
    management: u16,
    authority: Authority,
}

/// A port that nobody has now.
fn free() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("an address").port()
}

impl Pebble {
    /// `None`: it is not installed. It validates at these ports.
    fn start(folder: &Folder, http: u16, tls: u16) -> Option<Pebble> {
        let authority = Authority::new("pebble's own");
        folder.pair("pebble", &authority.sign(&["localhost"]));
        folder.write("pebble-ca.pem", &authority.pem);
        // A free port may be another's by the time that a program listens.
        for _ in 0..5 {
            let [port, management, dns, dns_management] = [free(), free(), free(), free()];
            let config = serde_json::json!({ "pebble": {
                "listenAddress": format!("127.0.0.1:{port}"), "managementListenAddress": format!("127.0.0.1:{management}"),
                "certificate": folder.0.join("pebble.pem"), "privateKey": folder.0.join("pebble.key"),
                "httpPort": http, "tlsPort": tls,
            }});
            let config = folder.write("pebble.json", &config.to_string());
            let names = start(Command::new("pebble-challtestsrv").args([
                "-defaultIPv6",
                "",
                "-http01",
                "",
                "-https01",
                "",
                "-tlsalpn01",
                "",
                "-dns01",
                &format!("127.0.0.1:{dns}"),
                "-management",
                &format!("127.0.0.1:{dns_management}"),
            ]))?;
            let server = start(
                Command::new("pebble")
                    .env("PEBBLE_VA_NOSLEEP", "1")
                    .arg("-config")
                    .arg(config)
                    .args(["-dnsserver", &format!("127.0.0.1:{dns}")]),
            )?;
            let mut programs = [names, server];
            if listens(&mut programs, [port, management]) {
                return Some(Pebble { _programs: programs, port, management, authority });
            }
        }
        panic!("pebble does not start");
    }

    /// Clients that believe what it issues.
    fn clients(&self) -> Arc<ClientConfig> {
        let io = connect(([127, 0, 0, 1], self.management).into(), &self.authority.clients(None), "localhost");
        let (answer, _) = ask(io, "localhost", "/roots/0").expect("pebble's root");
        let (_, pem) = answer.split_once("\r\n\r\n").expect("a body");
        let mut roots = RootCertStore::empty();
        let pem = &pem[pem.find("-----BEGIN").expect("PEM")..];
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut clients = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
        // Who resumes is not shown what is in force.
        clients.resumption = Resumption::disabled();
        Arc::new(clients)
    }
}

/// Whether both programs run, and listen at these ports; once that is known.
fn listens(programs: &mut [Running; 2], ports: [u16; 2]) -> bool {
    let mut is_up = false;
    until("pebble listens, or has ended", || {
        let ended = programs.iter_mut().any(|program| program.0.try_wait().expect("a child").is_some());
        is_up = !ended && ports.iter().all(|port| std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok());
        ended || is_up
    });
    is_up
}

/// `None`: it is not installed.
fn start(command: &mut Command) -> Option<Running> {
    match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => Some(Running(child)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "pebble is missing: {error}");
            None
        }
    }
}

/// A port that is the sentry's when it starts: nobody else is given it meanwhile.
struct Kept(Socket, SocketAddr);

impl Kept {
    fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_port(true).expect("an option");
        socket.set_reuse_address(true).expect("an option");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        let address = socket.local_addr().expect("an address").as_socket().expect("an address");
        Kept(socket, address)
    }
}

fn sentry(folder: &Folder, server: &RawServer, [plain, tls]: [&Kept; 2], keys: &str) -> Process {
    assert!(plain.0.local_addr().is_ok());
    let text = format!(
        "[sentry]\nworkers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n[[application]]\nname = \"app\"\n\
         listen = [\"{}\", {{ address = \"{}\", redirect = 443 }}]\nservers = \"{}\"\nhealth.interval = \"1h\"\n\
         [application.tls.acme]\ndomains = [\"{HOST}\"]\nca = \"pebble-ca.pem\"\ncache = \"cache\"\n{keys}\n",
        tls.1, plain.1, server.address
    );
    let file = folder.write("tidegate.toml", &text);
    let checked = Config::load(&file).unwrap_or_else(|errors| panic!("{errors}"));
    Process::start(checked.config, Some(&file)).expect("a process")
}

fn state(process: &Process) -> Value {
    let mut admin = Client::connect(process.admin_address().expect("an admin API"));
    admin.send("GET /api/state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    serde_json::from_str::<Value>(&admin.answer().text()).expect("JSON")["applications"][0]["acme"].clone()
}

fn issued(folder: &Folder) -> PathBuf {
    let entries = fs::read_dir(folder.0.join("cache")).expect("the cache");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "pem")).expect("a certificate")
}

#[track_caller]
fn is_private(path: &Path, mode: u32) {
    assert_eq!(fs::metadata(path).expect("there").permissions().mode() & 0o777, mode, "{}", path.display());
}

#[test]
fn a_certificate_is_ordered_kept_and_renewed() {
    let server = mirror();
    for challenge in ["tls-alpn-01", "http-01"] {
        let folder = Folder::new(&format!("acme-{challenge}"));
        let ports = [&Kept::new(), &Kept::new()];
        let Some(pebble) = Pebble::start(&folder, ports[0].1.port(), ports[1].1.port()) else { return };
        let directory = format!("https://localhost:{}/dir", pebble.port);
        let keys = format!("directory = \"{directory}\"\nemail = \"ops@tidegate.test\"\nchallenge = \"{challenge}\"");
        let clients = pebble.clients();
        let asked = Cell::new(0);
        let shown = || {
            let io = connect(ports[1].1, &clients, HOST);
            let (answer, io) = ask(io, HOST, "/").ok()?;
            asked.set(asked.get() + 1);
            assert_eq!(status(&answer), "200", "{answer}");
            Some(io.conn.peer_certificates().expect("a chain")[0].to_vec())
        };
        let process = sentry(&folder, &server, ports, &keys);
        assert!(shown().is_none(), "until it is there nobody believes the sentry");
        until("the certificate is in force", || shown().is_some());
        let first = shown().expect("a certificate");
        let counters = &process.sentry().apps()[0].counters;
        assert_eq!(counters.get(Counter::HandshakesFull), asked.get(), "{challenge}: an authority is no client");
        let told = state(&process);
        assert!(told["not_after"].as_u64() > told["next_order"].as_u64() && told["problem"].is_null(), "{told}");
        is_private(&folder.0.join("cache"), 0o700);
        is_private(&issued(&folder), 0o600);
        assert_eq!(fs::read_dir(folder.0.join("cache/challenges")).expect("a folder").count(), 0);
        drop(process);

        // What is kept is used by the next process, which orders none.
        let process = sentry(&folder, &server, ports, &keys);
        assert_eq!(shown().expect("a certificate"), first, "{challenge}");
        drop(process);

        // One whose life is nearly over is replaced while the sentry runs; the account stays the same.
        let account = |folder: &Folder| {
            let entries = fs::read_dir(folder.0.join("cache")).expect("the cache").flatten();
            let found = entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "json"));
            fs::read(found.expect("an account")).expect("reads")
        };
        let before = account(&folder);
        fs::write(issued(&folder), nearly_over()).expect("writes");
        let process = sentry(&folder, &server, ports, &keys);
        until("another certificate is in force", || shown().is_some_and(|shown| shown != first));
        assert_eq!(account(&folder), before);
        drop(process);
    }
}

/// A certificate for the host that ends in an hour, after a year.
fn nearly_over() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
    let now = std::time::SystemTime::now();
    params.not_before = (now - Duration::from_secs(365 * 86_400)).into();
    params.not_after = (now + Duration::from_secs(3600)).into();
    format!("{}{}", key.serialize_pem(), params.self_signed(&key).expect("a certificate").pem())
}

#[test]
fn an_authority_that_is_away_stops_nobody_and_is_told_of() {
    let (folder, server) = (Folder::new("acme-away"), mirror());
    folder.write("pebble-ca.pem", &Authority::new("nobody").pem);
    let ports = [&Kept::new(), &Kept::new()];
    let keys = format!("directory = \"https://localhost:{}/dir\"\nuntil = \"refuse\"", free());
    let process = sentry(&folder, &server, ports, &keys);
    until("it has failed", || state(&process)["failures"] == 1);
    let told = state(&process);
    assert!(told["problem"].as_str().is_some_and(|problem| problem.contains("/dir: Connection refused")), "{told}");
    assert!(told["not_after"].is_null() && told["next_order"].is_u64(), "{told}");
    let io = connect(ports[1].1, &Authority::new("any").clients(None), HOST);
    assert!(ask(io, HOST, "/").is_err(), "no handshake succeeds");
    until("that is counted", || process.sentry().apps()[0].counters.get(Counter::HandshakesFailed) == 1);
    let mut plain = Client::connect(ports[0].1);
    plain.send("GET /.well-known/acme-challenge/abc HTTP/1.1\r\nHost: shop.tidegate.test\r\n\r\n");
    assert_eq!(plain.answer().status, 308, "a token that nobody knows is a request like any other");
}
