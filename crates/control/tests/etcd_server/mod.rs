//! A real etcd on loopback.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_control::etcd::{Etcd, EtcdTls};

/// Whether etcd is there. With `CI=true`, or where the tests' programs were installed, it must be.
pub fn etcd_is_present() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let present = std::env::split_paths(&path).any(|folder| folder.join("etcd").is_file());
    let wanted = std::env::var("CI").is_ok_and(|ci| ci == "true") || std::env::var("TIDEGATE_HAVE_ETCD").is_ok();
    assert!(present || !wanted, "etcd is not in PATH; cargo xtask programs installs it");
    if !present {
        eprintln!("skipped: there is no etcd");
    }
    present
}

/// A server, killed at the end.
pub struct EtcdServer {
    folder: PathBuf,
    client: SocketAddr,
    peer: SocketAddr,
    /// Where `ca.pem`, `server.pem` and `server-key.pem` are; it wants certificates of its clients then.
    certificates: Option<PathBuf>,
    /// What its clients need for that.
    tls: Option<EtcdTls>,
    process: Option<Child>,
}

impl EtcdServer {
    pub fn start(name: &str) -> EtcdServer {
        EtcdServer::start_with(name, None)
    }

    /// One that is spoken to by TLS, with certificates in a folder.
    pub fn start_with(name: &str, tls: Option<(PathBuf, EtcdTls)>) -> EtcdServer {
        let folder = std::env::temp_dir().join(format!("tidegate-etcd-{name}-{}", std::process::id()));
        // What an earlier run left.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let (client, peer) = (free_address(), free_address());
        let (certificates, tls) = tls.unzip();
        let mut server = EtcdServer { folder, client, peer, certificates, tls, process: None };
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
        command.arg("--data-dir").arg(self.folder.join("data")).arg("--name").arg("one");
        command.arg("--listen-client-urls").arg(&client).arg("--advertise-client-urls").arg(&client);
        command.arg("--listen-peer-urls").arg(&peer).arg("--initial-advertise-peer-urls").arg(&peer);
        command.arg("--initial-cluster").arg(format!("one={peer}"));
        let log = std::fs::File::create(self.folder.join("log")).expect("a file");
        let errors = log.try_clone().expect("a file");
        self.process = Some(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("etcd starts"));
        let deadline = Instant::now() + Duration::from_secs(60);
        let way = Etcd::to(&[self.address()], self.tls.clone()).expect("a thread");
        while way.get("/is-it-there").is_err() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
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
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
        // The folder is temporary: leaving it harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "no {signal} to {pid}");
}

/// Below the ports that the system gives to clients, who would take one before etcd is there.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = std::process::id() as u16 % 2_000;
    let mut places = (0..2_000).map(|_| 30_000 + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % 2_000);
    let free = places.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port that is free");
    SocketAddr::from(([127, 0, 0, 1], free))
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
