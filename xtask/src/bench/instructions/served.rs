//! The real `tidegate run` before a real server, while it passes or refuses so many requests.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::callgrind::{self, Watched, Window};
use crate::bench::client::Client;
use crate::bench::load::{self, Shape};
use crate::bench::proxy::PROXY_CORE;
use crate::bench::service::{Service, free_address};
use crate::command::{Profile, output};

/// Connections whose turn it is to ask, where they are kept.
const CONNECTIONS: usize = 16;
/// Requests before the first count: estimates have settled, and buffers have their sizes.
const WARM_UP: u32 = 3_000;
/// How often each row is counted.
const WINDOWS: usize = 3;
/// From one of a quarter of the requests to the next, so many times what they take with no pauses and this at least, to
/// see what is done by the clock meanwhile.
const SLOWLY: f64 = 2.5;
const INTERVAL: Duration = Duration::from_millis(5);

/// How long it may take until it answers.
const START: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// What is asked of a sentry.
pub struct Case {
    /// What is asked for.
    pub path: &'static str,
    /// How.
    pub shape: Shape,
    /// The configuration's line about it.
    pub admission: &'static str,
    /// What is answered.
    pub status: u16,
    /// Requests of one count.
    pub requests: u32,
}

impl Case {
    /// Instructions of the sentry for one request, several times.
    ///
    /// # Errors
    /// When something does not start, or answers anything but what the case asks for.
    pub fn count(&self, name: &str, origin: SocketAddr, dir: &Path) -> Result<Vec<f64>> {
        let dir = free_folder(dir, name)?;
        let mut watched = self.start(name, origin, &dir)?;
        let address = watched.service.address;
        self.await_answer(address)?;
        let mut clients = match self.shape {
            Shape::KeepAlive => (0..CONNECTIONS).map(|_| Client::open(address)).collect::<Result<Vec<_>>>()?,
            _ => Vec::new(),
        };
        let began = Instant::now();
        self.ask(&mut clients, address, WARM_UP, None)?;
        let (slowly, interval) = (self.requests / 4, interval(began.elapsed() / WARM_UP));
        let slow = watched.count(|| self.ask(&mut clients, address, slowly, Some(interval)))?;
        let mut counts = Vec::new();
        for _ in 0..WINDOWS {
            let window = watched.count(|| self.ask(&mut clients, address, self.requests, None))?;
            counts.push(for_each(window, self.requests, slow, slowly)?);
        }
        Ok(counts)
    }

    fn start(&self, name: &str, origin: SocketAddr, dir: &Path) -> Result<Watched> {
        let (listen, admin) = (free_address()?, free_address()?);
        let file = dir.join("sentry.toml");
        fs::write(&file, self.configuration(listen, admin, origin))?;
        let mut command = callgrind::command(&Profile::Release.tidegate(), dir);
        command.args(["run", "-c"]).arg(&file).current_dir(dir);
        Ok(Watched::new(Service::start(name, command, PROXY_CORE, listen, dir)?, dir))
    }

    fn configuration(&self, listen: SocketAddr, admin: SocketAddr, origin: SocketAddr) -> String {
        format!(
            "[sentry]\nworkers = 1\n\n[admin]\nlisten = \"{admin}\"\n\n[[application]]\nname = \"bench\"\n\
             listen = \"{listen}\"\nservers = [\"{origin}\"]\n{}timeouts = {{ client_idle = \"600s\" }}\n",
            self.admission
        )
    }

    /// So slow a sentry listens for a while before it is ready.
    fn await_answer(&self, address: SocketAddr) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            match Client::ask_once(address, self.path, self.status) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error.context("the sentry never answered")),
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    /// Asks so many times, no more and no less, once each interval if there is one, and sees every answer.
    fn ask(&self, clients: &mut [Client], at: SocketAddr, requests: u32, interval: Option<Duration>) -> Result<()> {
        if self.shape == Shape::Http2 {
            return self.ask_by_h2load(at, requests, interval);
        }
        let mut due = Instant::now();
        for turn in (0..clients.len().max(1)).cycle().take(requests as usize) {
            match (self.shape, clients.get_mut(turn)) {
                (Shape::KeepAlive, Some(client)) => client.ask(self.path, self.status)?,
                (Shape::NewConnection, _) => Client::ask_once(at, self.path, self.status)?,
                (other, _) => bail!("no client of ours asks by {other:?}"),
            }
            if let Some(interval) = interval {
                due += interval;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    }

    /// One at a time on one connection.
    fn ask_by_h2load(&self, at: SocketAddr, requests: u32, interval: Option<Duration>) -> Result<()> {
        let mut h2load = Command::new("h2load");
        h2load.args(["-t1", "-c1", "-m1", "-n", &requests.to_string(), &format!("http://{at}{}", self.path)]);
        if let Some(interval) = interval {
            h2load.arg(format!("--rps={}", 1.0 / interval.as_secs_f64()));
        }
        let said = output(&mut h2load).context("h2load (Debian package nghttp2-client) asks by HTTP/2")?;
        let counted = load::parse_http2(&said).with_context(|| format!("cannot understand h2load:\n{said}"))?;
        let (done, refused) = (counted.responses, counted.refused + counted.socket_errors);
        ensure!(
            done == u64::from(requests) && refused == 0,
            "of {requests} requests {done} came back, {refused} failed"
        );
        Ok(())
    }
}

/// From one request to the next where they come slowly, when each takes `alone` on this machine.
fn interval(alone: Duration) -> Duration {
    INTERVAL.max(alone.mul_f64(SLOWLY))
}

/// What a request takes, without what is done by the clock while there are any: of that there is more for a request the
/// slower the machine is. Both windows have as much of it in a second.
fn for_each(fast: Window, requests: u32, slow: Window, slowly: u32) -> Result<f64> {
    let per_second = |window: Window, requests: u32| {
        (window.instructions as f64 / window.seconds, f64::from(requests) / window.seconds)
    };
    let ((much, often), (little, seldom)) = (per_second(fast, requests), per_second(slow, slowly));
    ensure!(
        often > 1.3 * seldom,
        "{often:.0} requests a second with no pauses, {seldom:.0} with: the machine is too slow"
    );
    Ok((much - little) / (often - seldom))
}

/// A folder that no other count has used: valgrind numbers what it writes.
fn free_folder(dir: &Path, name: &str) -> Result<std::path::PathBuf> {
    for number in 1.. {
        let folder = dir.join(format!("{name}-{number}"));
        if !folder.exists() {
            fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            return Ok(folder);
        }
    }
    bail!("no free folder in {}", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::instructions::{DEFAULT, REFUSE};

    #[test]
    fn what_is_done_by_the_clock_is_no_part_of_a_request() {
        // 50,000 for each request and 2,000,000 a second.
        let window =
            |requests: u64, seconds: f64| Window { instructions: requests * 50_000 + (2e6 * seconds) as u64, seconds };
        for seconds in [1.0, 2.0, 4.0] {
            let each = for_each(window(2000, seconds), 2000, window(500, 2.5), 500).unwrap();
            assert!((each - 50_000.0).abs() < 1.0, "{each}");
        }
        assert!(for_each(window(2000, 10.0), 2000, window(500, 2.5), 500).is_err());
    }

    #[test]
    fn on_a_slow_machine_requests_that_come_slowly_are_as_far_apart() {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        assert_eq!((interval(ms(0.5)), interval(ms(4.0))), (INTERVAL, ms(10.0)));
        let count = |alone: Duration| {
            let window = |requests: u64, seconds: f64| Window { instructions: requests * 50_000, seconds };
            let (alone, slowly) = (alone.as_secs_f64(), interval(alone).as_secs_f64());
            for_each(window(2000, 2000.0 * alone), 2000, window(500, 500.0 * slowly), 500)
        };
        for alone in [0.5, 3.5, 9.0, 40.0] {
            assert!(count(ms(alone)).is_ok(), "{alone} ms");
        }
    }

    #[test]
    fn each_row_is_toml_with_its_policy_and_one_worker() {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let case = |admission| Case { path: "/1k", shape: Shape::KeepAlive, admission, status: 200, requests: 1 };
        for (admission, policy) in [(DEFAULT, "waiting"), (REFUSE, "concurrency")] {
            let table: toml::Table = case(admission).configuration(at(1), at(2), at(3)).parse().unwrap();
            assert_eq!(table["sentry"]["workers"].as_integer(), Some(1));
            assert_eq!(table["application"][0]["admission"]["policy"].as_str(), Some(policy));
        }
    }
}
