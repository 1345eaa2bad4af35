//! Ways in and out that are no plain TCP connection over IPv4: Unix sockets, both families at once, and PROXY headers
//! to servers, with nginx and HAProxy at the other end where they are installed.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_engine::{ServerSetup, Status};
use tidegate_sentry::config::{Application, Listen, ProxyIn, ProxyOut, Server, SocketFile};
use tidegate_sentry::counters::Counter;
use tidegate_sentry::listen::usable;

use super::support::{Client, RawServer, Running, application, ok, until};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
/// A client that is not who the sentry is.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// A folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("writes");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Temporary: what is left harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An application with a server at each of these addresses.
fn before(addresses: &[String]) -> Application {
    let mut application = application(&[]);
    for address in addresses {
        application.servers.push(Server { name: address.clone(), address: address.clone() });
        application.setup.servers.push(ServerSetup::new(address));
    }
    application
}

fn at_socket(path: &Path) -> Listen {
    Listen { socket: Some(SocketFile::new(path, 0o600)), ..([0, 0, 0, 0], 0).into() }
}

/// A client of a Unix socket.
fn local(path: &Path) -> Client {
    let socket = UnixStream::connect(path).expect("a connection");
    Client::over(TcpStream::from(OwnedFd::from(socket)))
}

/// A server at a Unix socket, that says what it was told; for as long as it is asked.
fn serve_at(path: &Path) {
    let listener = UnixListener::bind(path).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut peer = super::support::Peer::new(TcpStream::from(OwnedFd::from(stream)));
                while let Some(asked) = peer.request() {
                    let told = asked.field("x-forwarded-for").unwrap_or("nobody").to_owned();
                    if asked.target == "/end"
                        || !peer.send(ok(&format!("{told} {}", asked.field("host").unwrap_or(""))))
                    {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn clients_and_servers_may_be_at_unix_sockets() {
    let folder = Folder::new("unix");
    let (front, back) = (folder.path("front.sock"), folder.path("back.sock"));
    serve_at(&back);
    let mut application = before(&[format!("unix:{}", back.display())]);
    application.listen = vec![([127, 0, 0, 1], 0).into(), at_socket(&front)];
    let sentry = Running::with_workers(application.clone(), 2);
    let ask = |request: &str| {
        let mut client = local(&front);
        client.send(request);
        let first = client.answer().text();
        client.send(request);
        assert_eq!(client.answer().text(), first, "for as long as the connection lasts");
        first
    };
    let forwarded = "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 192.0.2.1\r\n\r\n";
    assert_eq!(ask(GET), "nobody a", "who has no address is not given one");
    assert_eq!(ask(forwarded), "nobody a", "and is not believed");
    assert_eq!(ask("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"), "nobody localhost");
    application.forwarded.trust = vec!["0.0.0.0/32".parse().expect("a network")];
    sentry.handle.reload(super::support::config(application, 2)).expect("a reload");
    assert_eq!(ask(forwarded), "192.0.2.1 a");
    assert_eq!(sentry.ask(GET).text(), "127.0.0.1 a", "by the other listener");
    // Both workers accept from the one socket; more clients than one would do.
    let mut clients: Vec<_> = (0..20).map(|_| local(&front)).collect();
    for client in &mut clients {
        client.send(GET);
        assert_eq!(client.answer().status, 200);
    }
    let mut large = local(&front);
    large.send(format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 300000\r\n\r\n{}", "x".repeat(300_000)));
    assert_eq!(large.answer().status, 200);
    let mut refused = local(&front);
    refused.send("NONSENSE\r\n\r\n");
    assert_eq!(refused.answer().status, 400);
    refused.assert_closed();
    drop((clients, large));
    sentry.assert_quiet();
}

#[test]
fn servers_at_unix_sockets_are_checked() {
    let folder = Folder::new("unix-health");
    let back = folder.path("back.sock");
    let mut application = before(&[format!("unix:{}", back.display())]);
    application.health.interval = Duration::from_millis(5);
    let sentry = Running::start(application.clone());
    let status = || sentry.app().live().servers().next().map(|server| server.status());
    until("nobody is there", || status() == Some(Status::Down));
    serve_at(&back);
    until("somebody is", || status() == Some(Status::Up));
    assert_eq!(sentry.ask(GET).text(), "127.0.0.1 a");
    application.health.path = Some("/end".to_owned());
    sentry.handle.reload(super::support::config(application, 1)).expect("a reload");
    until("it does not answer", || status() == Some(Status::Down));
}

#[test]
fn one_socket_is_for_both_families_and_ipv4_is_shown_as_such() {
    let server = RawServer::answering(|asked| ok(asked.field("x-forwarded-for").unwrap_or("nobody")));
    let mut application = application(&[server.address]);
    let any: SocketAddr = "[::]:0".parse().expect("an address");
    application.listen = vec![any.into()];
    application.forwarded.trust = vec!["127.0.0.9/32".parse().expect("a network")];
    let sentry = Running::start(application);
    let port = sentry.address.port();
    let asked = |mut client: Client| {
        client.send("GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 192.0.2.1\r\n\r\n");
        client.answer().text()
    };
    let v4 = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(asked(Client::connect(v4)), "127.0.0.1", "not ::ffff:127.0.0.1");
    assert_eq!(asked(Client::connect_from(CLIENT.into(), v4)), "192.0.2.1, 127.0.0.9", "an IPv4 network fits");
    if usable(any) == any {
        assert_eq!(asked(Client::connect(SocketAddr::new("::1".parse().expect("an address"), port))), "::1");
    }
}

/// A server that reads a line before the first request of each connection, and says it.
fn lines(seen: Arc<Mutex<Vec<String>>>) -> RawServer {
    RawServer::start(move |mut peer| {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            match peer.exactly(1) {
                Ok(byte) => line.extend(byte),
                Err(_) => return,
            }
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        seen.lock().expect("a lock").push(line.clone());
        while peer.request().is_some() {
            if !peer.send(ok(&line)) {
                return;
            }
        }
    })
}

#[test]
fn a_connection_to_a_server_is_for_one_client() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let server = lines(seen.clone());
    let mut application = application(&[server.address]);
    application.server_proxy = ProxyOut::V1;
    application.health.interval = Duration::from_millis(5);
    application.health.path = Some("/".to_owned());
    let sentry = Running::start(application.clone());
    let told = |client: &mut Client| {
        client.send(GET);
        client.answer().text()
    };
    let wanted = |client: &Client| {
        let (from, to) = (client.io.local_addr().expect("an address"), sentry.address);
        format!("PROXY TCP4 {} {} {} {}", from.ip(), to.ip(), from.port(), to.port())
    };
    let mut one = Client::connect_from(CLIENT.into(), sentry.address);
    let mut other = sentry.client();
    for _ in 0..3 {
        assert_eq!(told(&mut one), wanted(&one));
        assert_eq!(told(&mut other), wanted(&other));
    }
    assert_eq!(sentry.count(Counter::ServerConnects), 2, "each has one of its own, and keeps it");
    until("checks speak for nobody", || seen.lock().expect("a lock").iter().any(|line| line == "PROXY UNKNOWN"));
    assert_eq!(sentry.app().live().servers().next().map(|server| server.status()), Some(Status::Up));
    // Once it is off, no connection that speaks for somebody is used by others.
    let plain = RawServer::echo();
    application.server_proxy = ProxyOut::Off;
    application.servers[0].address = plain.address.to_string();
    sentry.handle.reload(super::support::config(application, 1)).expect("a reload");
    assert_eq!(told(&mut one), "/");
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program; `None`: it is not installed.
fn run(program: &str, args: &[&str]) -> Option<Program> {
    let mut command = Command::new(program);
    let started = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match started {
        Ok(child) => Some(Program(child)),
        Err(_) => {
            assert!(std::env::var_os("CI").is_none(), "{program} is missing");
            None
        }
    }
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// What a server before which the sentry stands was told of its client, in plain HTTP and over TLS.
fn is_told(sentry: &Running, more: &str) {
    let mut client = Client::connect_from(CLIENT.into(), sentry.address);
    let port = client.io.local_addr().expect("an address").port();
    for _ in 0..2 {
        client.send(GET);
        let answer = client.answer();
        assert_eq!((answer.status, answer.text().trim()), (200, &*format!("{CLIENT} {port}{more}")));
    }
    let mut second = sentry.client();
    second.send(GET);
    assert!(second.answer().text().starts_with("127.0.0.1 "));
}

#[test]
fn nginx_believes_our_headers_before_tls_too() {
    let folder = Folder::new("nginx");
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    folder.write("cert.pem", &pair.cert.pem());
    folder.write("key.pem", &pair.signing_key.serialize_pem());
    let dir = folder.0.display();
    let conf = folder.write(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid {dir}/pid; error_log {dir}/log; events {{}}\n\
             http {{ access_log off; client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;\n\
             uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;\n\
             server {{ listen unix:{dir}/plain.sock proxy_protocol; listen unix:{dir}/tls.sock ssl proxy_protocol;\n\
             ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;\n\
             location / {{ return 200 \"$proxy_protocol_addr $proxy_protocol_port\"; }} }} }}\n"
        ),
    );
    let conf = conf.to_str().expect("a path");
    let Some(_nginx) = run("nginx", &["-p", folder.0.to_str().expect("a path"), "-e", "/dev/null", "-c", conf]) else {
        return;
    };
    until("nginx listens", || UnixStream::connect(folder.path("tls.sock")).is_ok());
    for version in [ProxyOut::V1, ProxyOut::V2] {
        for (scheme, socket) in [("", "plain.sock"), ("https://", "tls.sock")] {
            let text = format!(
                "[[application]]\nname = \"app\"\nlisten = \"127.0.0.1:0\"\nservers = \"{scheme}unix:{}\"\n\
                 admission = \"none\"\nserver_proxy = \"{}\"\nserver_tls.verify = false\nhealth.path = \"/\"\n\
                 [sentry]\nworkers = 1\n",
                folder.path(socket).display(),
                version.name()
            );
            let checked = tidegate_sentry::Config::parse(&text, Path::new("f")).unwrap_or_else(|e| panic!("{e}"));
            is_told(&Running::start(checked.config.applications[0].clone()), "");
        }
    }
}

#[test]
fn haproxy_believes_our_headers_and_we_believe_its() {
    let folder = Folder::new("haproxy");
    let sentry_at = folder.path("sentry.sock");
    let server = RawServer::answering(|asked| ok(asked.field("x-forwarded-for").unwrap_or("nobody")));
    let mut application = application(&[server.address]);
    application.listen = vec![Listen { proxy: ProxyIn::Required, ..at_socket(&sentry_at) }];
    application.forwarded.trust = vec!["0.0.0.0/32".parse().expect("a network")];
    let behind = Running::start(application);
    let dir = folder.0.display();
    let (v1, v2) = (free_port(), free_port());
    let conf = folder.write(
        "haproxy.cfg",
        &format!(
            "global\n maxconn 100\ndefaults\n mode http\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n\
             frontend echo\n bind unix@{dir}/echo.sock accept-proxy\n http-request return status 200 content-type \
             text/plain lf-string \"%[src] %[src_port] %[fc_pp_authority]\"\n\
             listen v1\n mode tcp\n bind 127.0.0.1:{v1}\n server s unix@{dir}/sentry.sock send-proxy\n\
             listen v2\n mode tcp\n bind 127.0.0.1:{v2}\n server s unix@{dir}/sentry.sock send-proxy-v2\n"
        ),
    );
    let Some(_haproxy) = run("haproxy", &["-db", "-f", conf.to_str().expect("a path")]) else { return };
    until("HAProxy listens", || {
        UnixStream::connect(folder.path("echo.sock")).is_ok() && TcpStream::connect(("127.0.0.1", v2)).is_ok()
    });
    for version in [ProxyOut::V1, ProxyOut::V2] {
        let mut application = before(&[format!("unix:{dir}/echo.sock")]);
        application.server_proxy = version;
        is_told(&Running::start(application), "");
    }
    for port in [v1, v2] {
        let mut client = Client::connect_from(CLIENT.into(), ([127, 0, 0, 1], port).into());
        client.send(GET);
        assert_eq!(client.answer().text(), CLIENT.to_string());
    }
    assert_eq!(behind.count(Counter::ProxyHeadersRefused), 0);
}
