//! What is lost where threads share a controller behind one lock, as the sentry's workers do.
//!
//! Measured: threads that each have a controller of their own, and in turn with it as many that share one. Each request
//! takes [`BESIDE`] of work without the lock, about what passing 1 kB takes, and the lock twice. On a machine of few
//! cores there is little to meet, so what more cores would lose is computed from how long the lock was held: a closed
//! network of one queue (mean value analysis, exponential service), in which each core is a customer.

use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_engine::{Controller, Decision, NoEvents, Outcome, Timestamp};

use super::rows::Scale;
use super::{request, setup};

/// What a request takes without the lock.
const BESIDE: Duration = Duration::from_micros(20);
/// Requests of a round, of all threads together.
const REQUESTS: u64 = 16_000;
const THREADS: [usize; 3] = [1, 2, 16];
const CORES: [u32; 4] = [2, 4, 16, 64];

/// Prints what is measured and what follows from it.
pub fn contended(scale: Scale) {
    println!(
        "\n## One lock\n\n| what | median ns | fastest | slowest | by locks of their own |\n|---|---|---|---|---|"
    );
    let rounds = if scale.rounds < 100 { 3 } else { 21 };
    let half = half();
    let held = middle(&mut (0..rounds).map(|_| nanos(&[locked()], 0)).collect::<Vec<_>>())[0];
    for threads in THREADS {
        let (mut times, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let own: Vec<_> = (0..threads).map(|_| locked()).collect();
            let one = locked();
            let alone = nanos(&own, half);
            let together = nanos(&vec![one; threads], half);
            times.push(together);
            ratios.push(together / alone);
        }
        let ([median, first, last], [ratio, least, most]) = (middle(&mut times), middle(&mut ratios));
        println!(
            "| a request, {threads} threads | {median:.0} | {first:.0} | {last:.0} | {ratio:.3} ({least:.3} to {most:.3}) |"
        );
    }
    println!("\n| computed | lost, the lock held for {held:.0} ns | for twice as long |\n|---|---|---|");
    for cores in CORES {
        let lost = |held: f64| 100.0 * lost(cores, held, BESIDE.as_secs_f64() * 1e9);
        println!("| {cores} cores | {:.1} % | {:.1} % |", lost(held), lost(2.0 * held));
    }
}

/// A controller that admits everything, behind its lock.
fn locked() -> Arc<Mutex<Controller>> {
    let mut setup = setup(r#"{ "policy": "waiting" }"#, "jsq", 3);
    // So that nobody waits.
    setup.servers.iter_mut().for_each(|server| server.cores = Some(256.0));
    Arc::new(Mutex::new(Controller::new(setup, 1, 1, Box::new(NoEvents)).expect("a sound setup")))
}

/// What a request takes where each of these is used by a thread, nanoseconds of the machine as a whole.
fn nanos(controllers: &[Arc<Mutex<Controller>>], half: u64) -> f64 {
    let each = REQUESTS / controllers.len() as u64;
    let (start, origin) = (Barrier::new(controllers.len() + 1), Instant::now());
    let (admitted, elapsed) = thread::scope(|scope| {
        let threads: Vec<_> = controllers
            .iter()
            .map(|controller| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    ask(controller, origin, each, half)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        let admitted: u64 = threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum();
        (admitted, began.elapsed())
    });
    assert_eq!(admitted, REQUESTS, "nobody waits, and nobody is refused");
    elapsed.as_secs_f64() * 1e9 / REQUESTS as f64
}

/// Sends so many requests, one after the other, each with so many steps of work before and after it is admitted;
/// returns how many were. Threads have one clock.
fn ask(controller: &Mutex<Controller>, origin: Instant, requests: u64, half: u64) -> u64 {
    let now = || Timestamp::ZERO + origin.elapsed();
    let mut admitted = 0;
    for number in 0..requests {
        work(half);
        let decision = controller.lock().expect("nobody panics").handle_arrival(now(), request(number, 0));
        work(half);
        if let Decision::Admit { ticket, .. } = decision {
            let outcome = Outcome::answered_in(Duration::from_millis(5));
            controller.lock().expect("nobody panics").handle_completion(now(), ticket, outcome);
            admitted += 1;
        }
    }
    admitted
}

/// Keeps a core busy; not by the clock, which goes on where a thread has no core.
fn work(steps: u64) {
    for step in 0..steps {
        black_box(step);
    }
}

/// Steps of work that take half of [`BESIDE`].
fn half() -> u64 {
    const TRIED: u64 = 1_000_000;
    let fastest = (0..5).map(|_| {
        let began = Instant::now();
        work(TRIED);
        began.elapsed().as_secs_f64()
    });
    (TRIED as f64 * BESIDE.as_secs_f64() / 2.0 / fastest.fold(f64::INFINITY, f64::min)) as u64
}

/// Median, least and most.
fn middle(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

/// The share of what so many cores could do that they lose by waiting for a lock that a request holds for `held`,
/// beside `beside` of other work.
fn lost(cores: u32, held: f64, beside: f64) -> f64 {
    let (mut queue, mut rate) = (0.0, 0.0);
    for customers in 1..=cores {
        let response = held * (1.0 + queue);
        rate = f64::from(customers) / (beside + response);
        queue = rate * response;
    }
    1.0 - rate / (f64::from(cores) / (beside + held))
}
