//! A network namespace for each test, listeners and connections in it, and the program `nft`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tidegate_kernel::Plan;

/// Nothing in these tests takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs `test` on a thread in a new network namespace whose loopback is up; `None` where that cannot be.
pub fn in_namespace<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = std::thread::spawn(move || enter().map(|()| test()));
    match thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        Ok(result) => Some(result),
        Err(missing) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot police connections here: {missing}");
            eprintln!("NOT RUN: this needs root, network namespaces and nft: {missing}");
            None
        }
    }
}

fn enter() -> io::Result<()> {
    // SAFETY: it takes no pointers, and concerns this thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    nft(&["list", "tables"]).map(drop)?;
    stay_on_this_core()?;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // SAFETY: all zeros are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (at, byte) in b"lo".iter().enumerate() {
        request.ifr_name[at] = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is an `ifreq`, as SIOCSIFFLAGS wants it, and outlives the call.
    match unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS as _, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Then the kernel handles what this thread sends over loopback in the order in which it was sent.
fn stay_on_this_core() -> io::Result<()> {
    // SAFETY: all zeros are a valid, empty `cpu_set_t`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: it takes nothing; and the number of a core is within a `cpu_set_t`, or nothing is set.
    unsafe { libc::CPU_SET(libc::sched_getcpu().try_into().unwrap_or(0), &mut set) };
    // SAFETY: `set` outlives the call, and its size is told; 0 is this thread.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub fn nft(args: &[&str]) -> io::Result<String> {
    let output = Command::new("/usr/sbin/nft").args(args).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn plan(listen: &[SocketAddr]) -> Plan {
    Plan { listen: listen.to_vec(), classes: Vec::new(), rest_share: 1.0, exempt: Vec::new(), depth: 20.0 }
}

/// Tries `count` connections from an address, at once, and counts those that come about.
pub fn connected(from: IpAddr, to: SocketAddr, count: usize) -> usize {
    tried(from, to, count).0
}

/// The same, and how often one was turned away: on a machine that stands still for a second the kernel tries again.
pub fn tried(from: IpAddr, to: SocketAddr, count: usize) -> (usize, u64) {
    let attempt = |_| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(TcpStream::from(socket)),
        }
    };
    let sockets: Vec<_> = (0..count).map(attempt).collect::<io::Result<_>>().expect("sockets");
    // When this one is there, which nobody polices, the kernel has dealt with those before it.
    let (_listener, unpoliced) = listener("127.0.0.1:0");
    TcpStream::connect(unpoliced).expect("a connection that nobody polices");
    let (there, away): (Vec<_>, Vec<_>) = sockets.iter().partition(|socket| socket.peer_addr().is_ok());
    (there.len(), away.iter().map(|socket| 1 + u64::from(tried_again(socket))).sum())
}

/// How often the kernel tried again to connect.
fn tried_again(socket: &TcpStream) -> u32 {
    // SAFETY: all zeros are a valid `tcp_info`.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    let fd = std::os::fd::AsRawFd::as_raw_fd(socket);
    // SAFETY: `info` and its size outlive the call, which writes no more than that.
    let got = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut size) };
    assert_eq!(got, 0, "{}", io::Error::last_os_error());
    info.tcpi_total_retrans
}

/// Waits until connections to `to` are no longer turned away.
#[track_caller]
pub fn until_all_connect(to: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    while connected(HERE, to, 40) < 40 {
        assert!(Instant::now() < deadline, "connections are still turned away");
        // tidy-allow(sleeping-tests): polls the condition above, with a deadline
        std::thread::sleep(Duration::from_millis(200));
    }
}

pub fn listener(address: &str) -> (TcpListener, SocketAddr) {
    let address: SocketAddr = address.parse().expect("an address");
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    socket.bind(&address.into()).expect("an address");
    // Nobody accepts here.
    socket.listen(4096).expect("a listener");
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().expect("an address");
    (listener, address)
}
