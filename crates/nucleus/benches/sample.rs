//! What a sample costs in processor time, with everything measured: ten a second, as a nucleus takes them, since what
//! is read depends on the time that passed, and its cost on what others did to the caches meanwhile.
//! `cargo bench -p tidegate-nucleus`.

use std::hint::black_box;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tidegate_nucleus::{Given, Sampler};

const ROUNDS: usize = 5;
/// Samples of a round: two seconds.
const SAMPLES: u32 = 20;
const INTERVAL: Duration = Duration::from_millis(100);

fn main() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    let servers: Vec<_> = (0..64).map(|_| listener.accept().expect("a connection")).collect();
    // Somebody who waits to be accepted: then the counters are read for every sample.
    let mut waiting = None;
    for (what, connections, somebody_waits) in [
        ("nobody waits", false, false),
        ("somebody waits to be accepted", false, true),
        ("64 connections, each with its process", true, false),
    ] {
        waiting = somebody_waits.then(|| TcpStream::connect(address).expect("a connection"));
        let given = Given { server: Some(address.to_string()), connections: Some(connections), ..Given::default() };
        let mut sampler = Sampler::new(&given.resolve(false).expect("valid"));
        let mut micros: Vec<f64> = (0..ROUNDS).map(|_| round(&mut sampler)).collect();
        micros.sort_by(f64::total_cmp);
        let (low, median, high) = (micros[0], micros[ROUNDS / 2], micros[ROUNDS - 1]);
        println!(
            "a sample, {what}: {median:.0} us ({low:.0} to {high:.0}); ten a second are {:.2} % of a processor",
            median * 1e-3
        );
        if waiting.take().is_some() {
            drop(listener.accept());
        }
    }
    drop((clients, servers, waiting));
}

/// Microseconds of processor time per sample.
fn round(sampler: &mut Sampler) -> f64 {
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
    };
    let (mut used, began) = (0.0, Instant::now());
    for number in 1..=SAMPLES {
        let before = cpu();
        black_box(sampler.sample());
        used += cpu() - before;
        std::thread::park_timeout((INTERVAL * number).saturating_sub(began.elapsed()));
    }
    used / f64::from(SAMPLES)
}
