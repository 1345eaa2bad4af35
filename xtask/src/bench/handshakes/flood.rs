//! A flood of handshakes: each client sends the same ClientHello, waits for the first byte or the reset, and leaves by
//! a reset.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::PATIENCE;
use crate::bench::proxy::LOAD_CORE;

/// Clients of the flood at once.
const FLOODERS: u32 = 64;

/// How far the flood's clients give way to others on their core: nice(2).
const NICENESS: i32 = 10;

/// Clients that begin handshakes; all stop when it is told to.
pub(super) struct Flood {
    is_over: Arc<AtomicBool>,
    tried: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Flood {
    pub(super) fn start(target: SocketAddr, rate: f64) -> Result<Flood> {
        let hello: Arc<[u8]> = client_hello()?.into();
        let (is_over, tried) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let every = Duration::from_secs_f64(f64::from(FLOODERS) / rate);
        let threads = (0..FLOODERS).map(|number| {
            let (is_over, tried, hello) = (is_over.clone(), tried.clone(), hello.clone());
            thread::spawn(move || {
                let mut cores = rustix::thread::CpuSet::new();
                cores.set(LOAD_CORE);
                let _ = rustix::thread::sched_setaffinity(None, &cores);
                // A flood comes from other machines: it does not keep those from the processor whose answers are timed.
                let _ = rustix::process::setpriority_process(None, NICENESS);
                let mut due = Instant::now() + every.mul_f64(f64::from(number) / f64::from(FLOODERS));
                let mut client = number;
                while !is_over.load(Relaxed) {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    // Who is behind does not catch up.
                    due = (due + every).max(Instant::now());
                    tried.fetch_add(1, Relaxed);
                    client = client.wrapping_add(FLOODERS);
                    let _ = begin(client, target, &hello);
                }
            })
        });
        Ok(Flood { is_over: is_over.clone(), tried: tried.clone(), threads: threads.collect() })
    }

    /// How many were tried.
    pub(super) fn stop(self) -> u64 {
        self.is_over.store(true, Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.tried.load(Relaxed)
    }
}

/// One handshake of a client of many, up to the first byte of an answer.
fn begin(client: u32, target: SocketAddr, hello: &[u8]) -> Result<()> {
    let SocketAddr::V4(target) = target else { bail!("{target} is no IPv4 address") };
    let [_, _, high, low] = (client % 16_384).to_be_bytes();
    let own = SocketAddrV4::new(Ipv4Addr::new(127, 1, high, low), 0);
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    rustix::net::bind(&socket, &own)?;
    rustix::net::connect(&socket, &target)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(hello)?;
    let _ = stream.read(&mut [0])?;
    Ok(())
}

/// What openssl begins a handshake with.
fn client_hello() -> Result<Vec<u8>> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &listener.local_addr()?.to_string(), "-servername", "bench.test"]);
    openssl.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut openssl = openssl.spawn().context("openssl (Debian package openssl) begins a handshake")?;
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(10 * PATIENCE))?;
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut record)?;
    drop(stream);
    openssl.wait()?;
    Ok([&head[..], &record].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_hello_is_the_beginning_of_a_handshake() {
        let hello = client_hello().unwrap();
        assert_eq!((hello[0], hello[5]), (22, 1));
        assert_eq!(usize::from(u16::from_be_bytes([hello[3], hello[4]])), hello.len() - 5);
    }
}
