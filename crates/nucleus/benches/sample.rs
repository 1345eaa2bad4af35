//! What a sample costs in processor time, with everything measured. `cargo bench -p tidegate-nucleus`.

use std::hint::black_box;
use std::net::{TcpListener, TcpStream};

use rustix::time::{ClockId, clock_gettime};
use tidegate_nucleus::{Given, Sampler};

const ROUNDS: usize = 11;
const SAMPLES: u32 = 200;

fn main() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    let servers: Vec<_> = (0..64).map(|_| listener.accept().expect("a connection")).collect();
    for connections in [false, true] {
        let given = Given { server: Some(address.to_string()), connections: Some(connections), ..Given::default() };
        let mut sampler = Sampler::new(&given.resolve(false).expect("valid"));
        let mut micros: Vec<f64> = (0..ROUNDS).map(|_| round(&mut sampler)).collect();
        micros.sort_by(f64::total_cmp);
        let (low, median, high) = (micros[1], micros[ROUNDS / 2], micros[ROUNDS - 2]);
        println!(
            "a sample, connections {connections}: {median:.0} us ({low:.0} to {high:.0}); ten a second are {:.2} % of a \
             processor",
            median * 1e-3
        );
    }
    drop((clients, servers));
}

/// Microseconds of processor time per sample.
fn round(sampler: &mut Sampler) -> f64 {
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
    };
    let before = cpu();
    (0..SAMPLES).for_each(|_| {
        black_box(sampler.sample());
    });
    (cpu() - before) / f64::from(SAMPLES)
}
