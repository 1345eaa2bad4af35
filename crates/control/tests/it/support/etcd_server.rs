//! A real etcd on loopback.
#![allow(dead_code, reason = "each of the two crates whose tests take it uses a part of it")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_control::etcd::{Etcd, EtcdTls};

use super::folder::quick_folder;
use super::ports::take;

pub fn etcd_is_present() -> bool {
    is_present("etcd")
}

/// Whether a program is there. With `CI=true`, or where the tests' programs were installed, it must be.
pub fn is_present(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let present = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let installed = format!("TIDEGATE_HAVE_{}", program.to_uppercase());
    let wanted = std::env::var("CI").is_ok_and(|ci| ci == "true") || std::env::var(installed).is_ok();
    assert!(present || !wanted, "{program} is not in PATH; cargo xtask programs installs it");
    if !present {
        eprintln!("skipped: there is no {program}");
    }
    present
}

/// A server, killed at the end.
pub struct EtcdServer {
    folder: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    /// Where `ca.pem`, `server.pem` and `server-key.pem` are; it wants certificates of its clients then.
    certificates: Option<PathBuf>,
    /// What its clients need for that.
    tls: Option<EtcdTls>,
    process: Option<Child>,
}

impl EtcdServer {
    pub fn start() -> EtcdServer {
        EtcdServer::start_with(None)
    }

    /// One that is spoken to by TLS, with certificates in a folder.
    pub fn start_with(tls: Option<(PathBuf, EtcdTls)>) -> EtcdServer {
        let (client, peer) = (free_address(), free_address());
        let (certificates, tls) = tls.unzip();
        let mut server = EtcdServer { folder: quick_folder(), client, peer, certificates, tls, process: None };
        server.begin();
        server
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        self.client.to_string()
    }

    pub fn begin(&mut self) {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let (client, peer) = (format!("{scheme}://{}", self.client), format!("http://{}", self.peer));
        let mut command = Command::new("etcd");
        if let Some(folder) = &self.certificates {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(folder.join("ca.pem"));
            command.arg("--cert-file").arg(folder.join("server.pem"));
            command.arg("--key-file").arg(folder.join("server-key.pem"));
        }
        command.arg("--data-dir").arg(self.file("data")).arg("--name").arg("one");
        command.arg("--listen-client-urls").arg(&client).arg("--advertise-client-urls").arg(&client);
        command.arg("--listen-peer-urls").arg(&peer).arg("--initial-advertise-peer-urls").arg(&peer);
        command.arg("--initial-cluster").arg(format!("one={peer}"));
        // It has nobody to wait for when it elects itself.
        command.args(["--heartbeat-interval", "20", "--election-timeout", "200"]);
        let log = std::fs::File::create(self.file("log")).expect("a file");
        let errors = log.try_clone().expect("a file");
        self.process = Some(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("etcd starts"));
        let deadline = Instant::now() + Duration::from_secs(60);
        let way = Etcd::to(&[self.address()], self.tls.clone()).expect("a thread");
        while way.get("/is-it-there").is_err() {
            let log = || std::fs::read_to_string(self.file("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "etcd does not come up: {}", log());
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// SIGKILL; `begin` starts it again with what it had.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// SIGSTOP and SIGCONT.
    pub fn stand_still(&self, is: bool) {
        signal(self.process.as_ref().expect("it runs").id(), if is { "-STOP" } else { "-CONT" });
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "no {signal} to {pid}");
}

/// Where etcd is put: below the ports that the system gives to clients, who would take one before etcd is there, and
/// below those where tests of the program put theirs.
const PORTS: std::ops::Range<u16> = 17_000..20_000;

/// An address that is nobody's, and is given to no other process while this one lives.
fn free_address() -> SocketAddr {
    // Each process begins elsewhere: few ports are tried in vain.
    let begin = (std::process::id() % PORTS.len() as u32) as u16;
    let mut ports = (0..PORTS.len() as u16).map(|at| PORTS.start + (begin + at) % PORTS.len() as u16);
    let free = ports.find(|port| take(*port) && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    SocketAddr::from((Ipv4Addr::LOCALHOST, free.expect("a port that is free")))
}

/// Stands before a server: passes connections on, and can lose answers.
pub struct Between {
    pub address: String,
    lose: std::sync::Arc<std::sync::atomic::AtomicU32>,
}

impl Between {
    pub fn start(to: &str) -> Between {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let lose = std::sync::Arc::<std::sync::atomic::AtomicU32>::default();
        let (to, losing) = (to.to_owned(), lose.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&to) else { continue };
                let losing = losing.clone();
                let (mut up, mut on) = (stream.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                thread::spawn(move || std::io::copy(&mut up, &mut on));
                thread::spawn(move || back(server, stream, &losing));
            }
        });
        Between { address, lose }
    }

    /// Loses so many answers, and the connections they were to come on.
    pub fn lose(&self, answers: u32) {
        self.lose.store(answers, std::sync::atomic::Ordering::SeqCst);
    }

    pub fn left_to_lose(&self) -> u32 {
        self.lose.load(std::sync::atomic::Ordering::SeqCst)
    }
}

fn back(mut server: TcpStream, mut client: TcpStream, lose: &std::sync::atomic::AtomicU32) {
    use std::io::{Read, Write};
    use std::sync::atomic::Ordering::SeqCst;
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = server.read(&mut bytes) {
        let lost = lose.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if lost || client.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // They may be closed already.
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = server.shutdown(std::net::Shutdown::Both);
}
